// The few names of CUDA's runtime API that kernel layers may use (tests/checks/check_includes.py); no CUDA needed.
#pragma once

enum cudaError { cudaSuccess = 0, cudaErrorInvalidConfiguration = 9 };
using cudaError_t = cudaError;
using cudaStream_t = struct CUstream_st*;
