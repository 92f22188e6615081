// SPDX-License-Identifier: MIT
#include "kformer/load/llama_config.hpp"

namespace kformer {

LlamaConfig llama_config(const ModelTable& model) {
  model.check();
  return model;
}

LlamaConfig llama_config(const LanguageModelTable& model) {
  model.check_model();
  return model;
}

}  // namespace kformer
