// SPDX-License-Identifier: MIT
#include "kformer/ops/adamw.hpp"

#include <cmath>
#include <limits>
#include <sstream>

namespace kformer::Impl {

namespace {

const std::string one_array = "a step runs over it as one array";

/// Small numbers as `std::to_string` does not show them.
std::string text(double number) {
  std::ostringstream stream;
  stream << number;
  return stream.str();
}

/// The operands of parameter number `i`, under its name.
Operands named(const char* function, std::size_t i, const AdamWParameter& parameter,
               const std::initializer_list<Operand>& operands) {
  std::string name = std::string(function) + ": parameter " + std::to_string(i);
  if (!parameter.name.empty()) name += " (" + parameter.name + ")";
  return Operands(name.c_str(), operands);
}

/// All arrays of parameter number `i`.
Operands arrays_of(const char* function, std::size_t i, const AdamWParameter& p) {
  return named(function, i, p,
               {{"weight", p.weight},
                {"gradient", p.gradient},
                {"master", p.master},
                {"m", p.m},
                {"v", p.v},
                {"m_scale", p.m_scale},
                {"v_scale", p.v_scale}});
}

void check_norm(const Operands& all, const TensorRef& norm, std::span<const AdamWParameter> parameters) {
  all.require_extents(norm.has_extents({1}), "norm[1]");
  all.require_floating("norm");
  if (parameters.empty())
    all.require_dtype("norm", compute_dtype(norm.dtype));
  else
    all.require_dtype("norm", parameters.front().gradient.dtype);
}

void check_states(const Operands& all, const AdamWParameter& p) {
  const TensorRef& weight = p.weight;
  const DType computed = compute_dtype(weight.dtype);
  if (p.m.dtype != DType::u8) {
    all.require_dtype("m", computed)
        .require_dtype("v", computed)
        .require_option(!p.m_scale.present() && !p.v_scale.present(),
                        std::string("m_scale and v_scale belong to 8-bit states, but m and v are ") +
                            to_string(computed) + "; leave them out");
    return;
  }
  const std::int64_t blocks = (weight.size() + adamw_block - 1) / adamw_block;
  all.require_option(weight.dtype != DType::f64,
                     "8-bit states are for 32-bit and 16-bit weights; give double weights double states")
      .require_dtype("v", DType::u8)
      .require_dtype("m_scale", DType::f32)
      .require_dtype("v_scale", DType::f32)
      .require_extents(p.m_scale.has_extents({blocks}) && p.v_scale.has_extents({blocks}),
                       "m_scale[" + std::to_string(blocks) + "] and v_scale[" + std::to_string(blocks) +
                           "], one per " + std::to_string(adamw_block) + " elements");
}

void check_parameter(const char* function, std::size_t i, const AdamWParameter& p) {
  const TensorRef& weight = p.weight;
  const DType computed = compute_dtype(weight.dtype);
  const Operands all = arrays_of(function, i, p);
  const auto fits = [&](const TensorRef& x) { return x.same_extents(weight); };
  const bool has_16_bits = size_of(weight.dtype) == 2;
  std::string missing;
  for (const auto& [role, ref] :
       {std::pair("gradient", &p.gradient), std::pair("m", &p.m), std::pair("v", &p.v)})
    if (!ref->present()) missing += (missing.empty() ? "; missing: " : ", ") + std::string(role);
  all.require_extents(weight.present() && fits(p.gradient) && fits(p.m) && fits(p.v),
                      "gradient, m and v to have the extents of weight" + missing)
      .require_option(
          weight.dtype != DType::i32 && weight.dtype != DType::u8,
          std::string("weight is stored as ") + to_string(weight.dtype) + "; use f32, bf16, f16 or f64")
      .require_dtype("gradient", computed)
      .require_option(has_16_bits || !p.master.present(),
                      std::string("a master weight is for 16-bit weights, but this one is ") +
                          to_string(weight.dtype) + "; leave it out")
      .require_extents(!p.master.present() || fits(p.master),
                       "master to have the extents of weight, because the step updates it and the 16-bit "
                       "weight is its rounding")
      .require_dtype("master", computed)
      .require_dense(one_array)
      .require_option(p.weight_decay >= 0 && std::isfinite(p.weight_decay),
                      "weight_decay must be finite and not negative, got " + text(p.weight_decay));
  for (const char* role : {"weight", "master", "m", "v", "m_scale", "v_scale"}) all.require_disjoint(role);
  check_states(all, p);
}

}  // namespace

Operands GradientNorm::operands() const { return Operands(function, {{"norm", norm}}); }

void GradientNorm::check() const {
  const Operands all = operands();
  check_norm(all, norm, parameters);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const TensorRef& gradient = parameters[i].gradient;
    named(function, i, parameters[i], {{"gradient", gradient}})
        .require_extents(gradient.present(), "a gradient")
        .require_dtype("gradient", compute_dtype(norm.dtype))
        .require_dense(one_array);
    named(function, i, parameters[i], {{"gradient", gradient}, {"norm", norm}}).require_disjoint("norm");
  }
}

void GradientNorm::require_memory() const {
  for (std::size_t i = 0; i < parameters.size(); ++i)
    named(function, i, parameters[i], {{"gradient", parameters[i].gradient}}).require_addresses();
}

Operands AdamW::operands() const { return Operands(function, {{"norm", norm}}); }

void AdamW::check() const {
  const Operands all = operands();
  const AdamWOptions& o = options;
  const auto is_fraction = [](double beta) { return beta >= 0 && beta < 1; };
  constexpr double smallest = std::numeric_limits<float>::min();
  all.require_option(o.learning_rate >= 0 && std::isfinite(o.learning_rate),
                     "learning_rate must be finite and not negative, got " + text(o.learning_rate))
      .require_option(
          is_fraction(o.beta1) && is_fraction(o.beta2),
          "beta1 and beta2 must be at least 0 and less than 1, got " + text(o.beta1) + " and " + text(o.beta2))
      .require_option(o.eps >= smallest && std::isfinite(o.eps),
                      "eps must be finite and at least " + text(smallest) +
                          ", the smallest normal float, because it prevents 0 / 0; got " + text(o.eps))
      .require_option(o.step >= 1, "steps count from 1, got step " + std::to_string(o.step))
      .require_option(o.gradient_scale > 0 && std::isfinite(o.gradient_scale),
                      "gradient_scale must be finite and positive, got " + text(o.gradient_scale))
      .require_option(o.max_norm >= 0, "max_norm must not be negative, got " + text(o.max_norm))
      .require_option(o.max_norm == 0 || norm.present(),
                      "max_norm needs the norm of the gradients; pass what gradient_norm has written");
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    check_parameter(function, i, parameters[i]);
    if (!norm.present()) continue;
    named(function, i, parameters[i], {{"gradient", parameters[i].gradient}})
        .require_dtype("gradient", parameters.front().gradient.dtype);
  }
  if (norm.present()) check_norm(all, norm, parameters);
}

void AdamW::require_memory() const {
  for (std::size_t i = 0; i < parameters.size(); ++i) arrays_of(function, i, parameters[i]).require_addresses();
}

}  // namespace kformer::Impl
