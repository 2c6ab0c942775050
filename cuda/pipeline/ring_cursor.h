// A position in a ring of stages: which slot, and the parity of the phase to wait for. The only place where a phase
// flips.
#pragma once

#include <cstdint>

namespace jax_fp8::pipeline {

template <int kStages>
class RingCursor {
 public:
  // A consumer starts at phase 0; a producer at 1, whose wait on a fresh `empty` barrier passes.
  constexpr explicit RingCursor(uint32_t phase) : phase_(phase) {}

  constexpr int stage() const { return stage_; }
  constexpr uint32_t phase() const { return phase_; }

  constexpr void advance() {
    if (++stage_ == kStages) {
      stage_ = 0;
      phase_ ^= 1;
    }
  }

 private:
  int stage_ = 0;
  uint32_t phase_;
};

}  // namespace jax_fp8::pipeline
