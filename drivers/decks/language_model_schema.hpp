// SPDX-License-Identifier: MIT
#pragma once

#include "io/config/model_schema.hpp"

/// \file
/// The table [model] of decks whose model is a whole language model.

namespace kformer::Impl::schema {

template <class V>
void describe(V& v, LanguageModelTable& t) {
  describe(v, static_cast<ModelTable&>(t));
  describe_model(v, t, "required, or from `config`");
}

}  // namespace kformer::Impl::schema
