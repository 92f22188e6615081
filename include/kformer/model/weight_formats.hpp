// SPDX-License-Identifier: MIT
#pragma once

#include <map>
#include <optional>
#include <string>

#include "kformer/core/quantized_format.hpp"
#include "kformer/model/projection.hpp"

/// \file
/// Which weights of a model stay quantised. Free of Kokkos.

namespace kformer {

/// The formats of the weights that stay quantised, by published name; others are dense.
using WeightFormats = std::map<std::string, QuantizedFormat, std::less<>>;

/// The format of a matrix; none if it is dense.
inline std::optional<QuantizedFormat> format_in(const WeightFormats& formats, const std::string& name) {
  const auto found = formats.find(name);
  return found == formats.end() ? std::nullopt : std::optional(found->second);
}

/// The formats of one layer of a model, by the names of its own matrices.
inline WeightFormats formats_of_layer(const WeightFormats& of_model, std::int64_t layer) {
  const std::string prefix = "model.layers." + std::to_string(layer) + ".";
  WeightFormats formats;
  for (std::size_t i = 0; i < names_of<Projection>.size(); ++i) {
    const std::string name = projection_weight_name(static_cast<Projection>(i));
    if (const auto format = format_in(of_model, prefix + name)) formats[name] = *format;
  }
  return formats;
}

/// The formats of a model without those of the embedding and the head.
inline WeightFormats formats_of_projections(const WeightFormats& of_model, std::int64_t layers) {
  WeightFormats formats;
  for (std::int64_t l = 0; l < layers; ++l)
    for (const auto& [name, format] : formats_of_layer(of_model, l))
      formats["model.layers." + std::to_string(l) + "." + name] = format;
  return formats;
}

}  // namespace kformer
