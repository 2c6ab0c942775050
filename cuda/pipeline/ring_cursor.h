// A position in a ring of stages: which slot, and the parity of the phase to wait for. The only place where a phase
// flips.
#pragma once

#include <cstdint>

namespace jax_fp8::pipeline {

class RingCursor {
 public:
  // A consumer starts at phase 0; a producer at 1, whose wait on a fresh `empty` barrier passes.
  constexpr RingCursor(int stages, uint32_t phase) : stages_(stages), phase_(phase) {}

  constexpr int stage() const { return stage_; }
  constexpr uint32_t phase() const { return phase_; }

  constexpr void advance() {
    if (++stage_ == stages_) {
      stage_ = 0;
      phase_ ^= 1;
    }
  }

 private:
  int stages_;
  int stage_ = 0;
  uint32_t phase_;
};

}  // namespace jax_fp8::pipeline
