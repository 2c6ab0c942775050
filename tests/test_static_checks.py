"""Static checks of the sources and the compiled kernels (tests/checks); those checks can fail.

No GPU is needed. A check whose tool is missing is skipped with the reason; JAX_FP8_STRICT=1 (CI)
makes that a failure.
"""

from __future__ import annotations

import os

import check_host_syntax
import check_includes
import check_linkage
import check_ptx
import check_sass
import checklib
import pytest

CHECKS = [check_includes, check_host_syntax, check_linkage, check_ptx, check_sass]


@pytest.mark.parametrize("module", CHECKS, ids=lambda module: module.__name__)
def test_static_check(module):
    try:
        problems = module.check()
    except checklib.Unavailable as missing:
        if os.environ.get("JAX_FP8_STRICT", "0") not in ("", "0"):
            pytest.fail(str(missing))
        pytest.skip(str(missing))
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize(
    ("layer", "line", "message"),
    [
        ("tile", '#include "sm90/kernel.h"', "no file of cuda/"),
        ("tile", "#include <cuda_fp8.h>", "belongs in cuda/ptx"),
        ("sm90", '#include "xla/ffi/api/ffi.h"', "belongs in cuda/ffi"),
        ("sm90", "int lane = threadIdx.x % 32;", "special register"),
        ("sm90", "__shared__ int slot;", "memory space"),
        ("quantize", "v = __shfl_xor_sync(~0u, v, 1);", "intrinsic"),
        ("sm90", "kernel<<<grid, block>>>(params);", "launch"),
        ("pipeline", 'asm volatile("nop;");', "inline assembly"),
        ("host", "cuTensorMapEncodeTiled(&map);", "driver"),
        ("sm90", "cudaGetDevice(&device);", "runtime API in a kernel layer"),
    ],
)
def test_check_includes_reports(tmp_path, monkeypatch, layer, line, message):
    monkeypatch.setattr(check_includes, "CUDA", tmp_path)
    path = tmp_path / layer / "file.h"
    path.parent.mkdir()
    path.write_text(f"// threadIdx in a comment is fine\n{line}\n")
    problems = check_includes.check_file(path, layer)
    assert problems
    assert all(f"cuda/{layer}/file.h:2:" in problem for problem in problems)
    assert any(message in problem for problem in problems)


@pytest.mark.parametrize(
    ("source", "target", "allowed"),
    [
        ("sm90", "pipeline", True),
        ("ffi", "ptx", True),
        ("sm90", "sm100", False),
        ("sm100", "sm90", False),
        ("tile", "pipeline", False),
        ("host", "ffi", False),
    ],
)
def test_check_includes_order(tmp_path, monkeypatch, source, target, allowed):
    monkeypatch.setattr(check_includes, "CUDA", tmp_path)
    for layer in (source, target):
        (tmp_path / layer).mkdir()
    (tmp_path / target / "other.h").write_text("")
    path = tmp_path / source / "file.h"
    path.write_text(f'#include "{target}/other.h"\n')
    assert (check_includes.check_file(path, source) == []) is allowed


def test_check_ptx_reads_ptxas_output():
    log = """\
ptxas info    : Compiling entry function 'good' for 'sm_90a'
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : (C7508) Potential Performance Loss: 'setmaxnreg' ignored; ...
ptxas info    : Compiling entry function 'bad' for 'sm_90a'
    16 bytes stack frame, 8 bytes spill stores, 8 bytes spill loads
"""
    problems = check_ptx.ptxas_problems(log)
    assert len(problems) == 2
    assert "C7508" in problems[0]
    assert problems[1].startswith("bad: 16 bytes")


def test_check_ptx_names_the_entry_that_traps():
    ptx = ".visible .entry good(\n)\n{\n ret;\n}\n.entry bad(\n)\n{\n trap;\n}\n"
    assert check_ptx.traps(ptx) == ["bad"]


def test_check_sass_reports():
    sass = """
\t\tFunction : _Z10fp8_matmulv
        /*0000*/                   QGMMA.64x64x32.F32.E4M3.E4M3 R24, gdesc[UR4], RZ ;
        /*0010*/              @!P0 STL [R1], R2 ;
\t\tFunction : _Z15quantize_kernelv
        /*0000*/                   LDG.E R0, [R2] ;
"""
    assert check_sass.problems_in(check_sass.functions(sass)) == [
        "_Z10fp8_matmulv: no UTMALDG",
        "_Z10fp8_matmulv: STL (local memory)",
    ]
    assert check_sass.problems_in({"k": {"LDG"}}) == ["no kernel with QGMMA among 1 functions"]


def test_check_linkage_reports():
    good = " 0x1 (NEEDED)  Shared library: [libstdc++.so.6]\n 0x1 (NEEDED)  Shared library: [libc.so.6]\n"
    cubins = "ELF file    1: _cuda.1.sm_90a.cubin\nELF file    2: _cuda.2.sm_90a.cubin\n"
    assert check_linkage.problems_in(good, cubins) == []
    bad = good + " 0x1 (NEEDED)  Shared library: [libcudart.so.13]\n 0x1 (NEEDED)  Shared library: [libcuda.so.1]\n"
    assert check_linkage.problems_in(bad, cubins) == ["needs libcudart", "needs libcuda"]
    problems = check_linkage.problems_in(good, "ELF file    1: _cuda.1.sm_90.cubin\nPTX file    1: _cuda.1.sm_90.ptx\n")
    assert problems == ["has machine code for ['sm_90'], not ['sm_90a']", "embeds PTX"]
