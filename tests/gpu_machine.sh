#!/usr/bin/env bash
# Builds, tests and benchmarks jax_fp8 on a machine with a Hopper GPU: tests/gpu_machine.sh [STEP ...]
#
# Steps: build driver test sanitize bench train; default all of them, in this order. Needs nvcc, cmake, ninja, nanobind,
# scikit-build-core, jax with its CUDA plugin, pytest and hypothesis; no network. OUT: folder for results (default: a new one).
set -uo pipefail
cd "$(dirname "$0")/.."
steps=${*:-build driver test sanitize bench train}
out=${OUT:-$(mktemp -d)}
work=${WORK:-/tmp/jax_fp8_gpu}
site=$work/site
mkdir -p "$work"
export PYTHONUNBUFFERED=1 XLA_PYTHON_CLIENT_PREALLOCATE=false
failed=()

step() {
  local name=$1 start=$SECONDS
  shift
  echo "==== $name"
  "$@" || failed+=("$name")
  echo "==== $name: $((SECONDS - start)) s"
}

has_step() { [[ " $steps " == *" $1 "* ]]; }

build() {
  python3 -m pip install -q --no-build-isolation --no-deps --upgrade --target "$site" . 2>&1 | tail -n 25
  (cd "$work" && PYTHONPATH=$site python3 -c 'import jax_fp8._extension as e; assert e.cuda, "built without CUDA"; print(e.cuda.build_id)')
}

driver() {
  cmake -S . -B "$work/driver" -G Ninja -DJAX_FP8_TEST_DRIVER=ON -Dnanobind_DIR="$(python3 -m nanobind --cmake_dir)" \
    -DPython_EXECUTABLE="$(command -v python3)" >"$out/driver_cmake.log" 2>&1 &&
    cmake --build "$work/driver" --target jax_fp8_driver >"$out/driver_build.log" 2>&1 || { tail -n 30 "$out"/driver_*.log; return 1; }
  timeout 120 "$work/driver/jax_fp8_driver" | tee "$out/driver.log" | tail -n 15
}

# The suites of the CPU run on the GPU as well: the same tests, on the kernels. One process a file, all at once: work of
# other processes beside it is part of the test.
run_tests() {
  local file name pids=() status=0
  rm -rf "$work/pytest" && mkdir -p "$work/pytest"
  for file in ${TEST_FILES:-tests/test_*.py}; do
    name=$(basename "$file" .py)
    PYTHONPATH=$site timeout "${TEST_TIMEOUT:-420}" python3 -m pytest -q --maxfail=8 -p no:cacheprovider --durations=5 \
      ${PYTEST_ARGS:-} "$file" >"$work/pytest/$name.log" 2>&1 &
    pids+=("$!:$name")
  done
  for file in "${pids[@]}"; do
    if wait "${file%%:*}"; then name=ok; else name=FAILED; status=1; fi
    echo "$name ${file#*:}: $(tail -n 1 "$work/pytest/${file#*:}.log")"
  done
  cat "$work"/pytest/*.log >"$out/pytest.log"
  grep -hE '^(FAILED|ERROR|SKIPPED)' "$out/pytest.log" | cut -c1-300 | head -n 40
  return $status
}

# All tools at once.
sanitize() {
  local tool status=0 skip pids=()
  for tool in memcheck racecheck synccheck initcheck; do
    skip=()
    # racecheck does not follow reads -> __syncwarp -> one lane's mbarrier arrival -> cp.async of another warp, and reports
    # the scales that come by cp.async; with an arrival from each lane it reports none (docs/engineering_log.md)
    [[ $tool == racecheck ]] && skip=(--skip "scales by cp.async")
    timeout "${SANITIZE_TIMEOUT:-400}" compute-sanitizer --tool "$tool" --error-exitcode 9 \
      "$work/driver/jax_fp8_driver" --exact --repeats 2 "${skip[@]}" >"$out/$tool.log" 2>&1 &
    pids+=("$!:$tool")
  done
  for tool in "${pids[@]}"; do
    wait "${tool%%:*}" || { status=1; grep -v '^ok' "$out/${tool#*:}.log" | head -n 25; }
    echo "-- ${tool#*:}"
    tail -n 3 "$out/${tool#*:}.log"
  done
  return $status
}

# BENCH_ARGS: such as "--set decode --set prefill"; BENCH_TIMEOUT: seconds. PyTorch's products run where it is installed.
bench() { PYTHONPATH=$site timeout "${BENCH_TIMEOUT:-560}" python3 -m jax_fp8.bench ${BENCH_ARGS:-} --json "$out/bench.json"; }

train() { PYTHONPATH=$site timeout 300 python3 -m jax_fp8 --json "$out/train.json" 2>&1 | tail -n 60; }

nvidia-smi --query-gpu=name,driver_version,clocks.sm,temperature.gpu --format=csv,noheader
has_step build && step build build
has_step driver && step driver driver
has_step test && step test run_tests
has_step sanitize && step sanitize sanitize
has_step bench && step bench bench
has_step train && step train train
if ((${#failed[@]})); then
  echo "failed: ${failed[*]}"
  exit 1
fi
echo "all steps passed: $steps"
