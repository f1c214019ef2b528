// Describes a kernel's parameters, so that a compiler can compare them with what the host passes: pointers,
// then at most one struct by value. `cudml/devices/kernel_text.py` writes the assertions that use this.
#pragma once

#include "common/offset_of.cuh"
#include "common/types.cuh"

namespace signature {

template <class Left, class Right>
constexpr bool is_same = false;
template <class Type>
constexpr bool is_same<Type, Type> = true;

template <class Type>
constexpr bool is_pointer = false;
template <class Type>
constexpr bool is_pointer<Type*> = true;

template <class... Parameters>
struct Last {
  using Type = void;
};
template <class Parameter>
struct Last<Parameter> {
  using Type = Parameter;
};
template <class First, class... Rest>
struct Last<First, Rest...> : Last<Rest...> {};

template <class Kernel>
struct Of;
template <class... Parameters>
struct Of<void (*)(Parameters...)> {
  using Params = typename Last<Parameters...>::Type;
  static constexpr int kNumParameters = sizeof...(Parameters);
  static constexpr int kNumPointers = (0 + ... + (is_pointer<Parameters> ? 1 : 0));
  // Pointers come first exactly if all parameters except a last struct are pointers.
  static constexpr bool kHasParams = kNumPointers != kNumParameters;
  static constexpr bool kIsInOrder =
      kNumPointers + (kHasParams ? 1 : 0) == kNumParameters && !(kHasParams && is_pointer<Params>);
};

}  // namespace signature
