// Checks of what comes from outside. A message is made only for an error: checks run on every call.
#pragma once

#include <stdexcept>
#include <string>
#include <type_traits>

namespace jax_fp8::host {

// `message`: text, or a function that makes it.
template <typename Message>
void require(bool holds, const Message& message) {
  if (holds) [[likely]]
    return;
  if constexpr (std::is_invocable_v<Message>) {
    throw std::invalid_argument(message());
  } else {
    throw std::invalid_argument(message);
  }
}

}  // namespace jax_fp8::host
