# Finds the CUDA compiler and what is linked with it.
#
# Sets JAX_FP8_NVCC (empty: build without CUDA kernels), JAX_FP8_CUDA_INCLUDE and JAX_FP8_CUDART_STATIC.
# A compiler given by -DCMAKE_CUDA_COMPILER wins; the rest of the search order is in find_nvcc.py. Nothing is cached, so a
# build folder follows the machine.

set(JAX_FP8_NVCC "")
set(_cpu_only "building without CUDA kernels (CPU and XLA paths only)")
if(NOT JAX_FP8_CUDA STREQUAL "AUTO" AND NOT JAX_FP8_CUDA)
  message(NOTICE "jax_fp8: JAX_FP8_CUDA=${JAX_FP8_CUDA}: ${_cpu_only}")
  return()
endif()

if(CMAKE_CUDA_COMPILER AND EXISTS "${CMAKE_CUDA_COMPILER}")
  set(JAX_FP8_NVCC "${CMAKE_CUDA_COMPILER}")
else()
  execute_process(COMMAND "${Python_EXECUTABLE}" "${CMAKE_CURRENT_LIST_DIR}/find_nvcc.py"
                  OUTPUT_VARIABLE JAX_FP8_NVCC COMMAND_ERROR_IS_FATAL ANY)
endif()
if(NOT JAX_FP8_NVCC)
  if(NOT JAX_FP8_CUDA STREQUAL "AUTO")
    message(FATAL_ERROR "jax_fp8: JAX_FP8_CUDA=${JAX_FP8_CUDA} but no nvcc was found. Put nvcc on PATH, set CUDA_HOME, "
                        "or install the wheels nvidia-cuda-nvcc, nvidia-nvvm, nvidia-cuda-crt, nvidia-cuda-runtime and "
                        "nvidia-cuda-cccl.")
  endif()
  message(NOTICE "jax_fp8: no nvcc found: ${_cpu_only}")
  return()
endif()

# nvcc itself knows its root; the path found may be a wrapper script or a link.
file(WRITE "${CMAKE_BINARY_DIR}/probe.cu" "")
execute_process(COMMAND "${JAX_FP8_NVCC}" --dryrun -c "${CMAKE_BINARY_DIR}/probe.cu" -o probe.o
                ERROR_VARIABLE _dryrun OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
if(NOT _dryrun MATCHES "_HERE_=([^\n\r]*)")
  message(FATAL_ERROR "jax_fp8: ${JAX_FP8_NVCC} --dryrun does not say where it lives:\n${_dryrun}")
endif()
get_filename_component(_root "${CMAKE_MATCH_1}/.." ABSOLUTE)
set(JAX_FP8_NVCC "${_root}/bin/nvcc")

set(_target "${_root}/targets/${CMAKE_SYSTEM_PROCESSOR}-linux")
unset(JAX_FP8_CUDA_INCLUDE)
unset(JAX_FP8_CUDART_STATIC)
find_path(JAX_FP8_CUDA_INCLUDE cuda_runtime_api.h
          PATHS "${_root}/include" "${_target}/include" "${_root}/targets/sbsa-linux/include"
          NO_DEFAULT_PATH NO_CACHE REQUIRED)
find_library(JAX_FP8_CUDART_STATIC NAMES libcudart_static.a
             PATHS "${_root}/lib64" "${_root}/lib" "${_target}/lib" "${_root}/targets/sbsa-linux/lib"
             NO_DEFAULT_PATH NO_CACHE REQUIRED)
message(NOTICE "jax_fp8: CUDA kernels with ${JAX_FP8_NVCC}")
