// SPDX-License-Identifier: MIT
#pragma once

#include <type_traits>

#include "kformer/core/views.hpp"

/// \file
/// The operands of modules, with one sentence for each that does not fit.

namespace kformer::Impl {

/// An operand of a module.
enum class Role {
  x,
  context,
  y,
  dy,
  dx,
  dcontext,
  logits,
  ids,
  targets,
  loss,
  dloss,
  weight,
  weight_bias,
  gradient,
  gradient_bias
};

/// What was passed as an operand of type `Expected`, a View. Each member function that takes such operands has a
/// template beside it that takes them like this: the compiler prefers the function, and where a View does not fit,
/// it has the template, and this sentence in place of a list of conversions.
template <Role role, class Expected>
struct Passed {
  /// Nothing: an operand that may be left out.
  Passed() = default;

  /// Refuses a View that does not fit.
  template <AnyView V>
  Passed(const V&) {
    constexpr bool fits = std::is_convertible_v<const V&, Expected>;
    static_assert(
        role != Role::x || fits,
        "kformer: x must be a rank-2 View (tokens, features) of the module's storage type T, in memory "
        "that its execution space can access");
    static_assert(
        role != Role::context || fits,
        "kformer: context must be a rank-2 View (tokens, features) of the module's storage type T, in "
        "memory that its execution space can access");
    static_assert(
        role != Role::y || fits,
        "kformer: y must be a rank-2 View (tokens, features) of the module's storage type T, not const, "
        "in memory that its execution space can access");
    static_assert(
        role != Role::dy || fits,
        "kformer: dy must be a rank-2 View (tokens, features) of the module's storage type T, in memory "
        "that its execution space can access");
    static_assert(role != Role::dx || fits,
                  "kformer: dx must be a rank-2 View (tokens, features) of the module's storage type T, not "
                  "const, in memory that its execution space can access");
    static_assert(
        role != Role::dcontext || fits,
        "kformer: dcontext must be a rank-2 View (tokens, features) of the module's storage type T, not "
        "const, in memory that its execution space can access");
    static_assert(role != Role::logits || fits,
                  "kformer: logits must be a rank-2 View (tokens, words) of the model's storage type T, not "
                  "const, in memory that its execution space can access");
    static_assert(
        role != Role::ids || fits,
        "kformer: ids must be a rank-1 View of std::int32_t, in memory that the execution space of the "
        "model can access");
    static_assert(
        role != Role::targets || fits,
        "kformer: targets must be a rank-1 View of std::int32_t, in memory that the execution space of "
        "the model can access");
    static_assert(
        role != Role::loss || fits,
        "kformer: loss must be a rank-1 View of compute_t<T> (float, or double for double), not const, "
        "in memory that the execution space of the model can access");
    static_assert(
        role != Role::dloss || fits,
        "kformer: dloss must be a rank-1 View of compute_t<T> (float, or double for double), in memory "
        "that the execution space of the model can access");
    static_assert(role != Role::weight || fits,
                  "kformer: a weight must be a rank-2 View of the module's storage type T, in memory that its "
                  "execution space can access");
    static_assert(role != Role::weight_bias || fits,
                  "kformer: a bias must be a rank-1 View of the module's storage type T, in memory that its "
                  "execution space can access");
    static_assert(
        role != Role::gradient || fits,
        "kformer: the gradient of a weight must be a rank-2 View of compute_t<T> (float also for bf16 "
        "and f16), not const, in memory that the module's execution space can access");
    static_assert(role != Role::gradient_bias || fits,
                  "kformer: the gradient of a bias must be a rank-1 View of compute_t<T> (float also for bf16 "
                  "and f16), not const, in memory that the module's execution space can access");
  }
};

}  // namespace kformer::Impl
