// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "app/stop.hpp"
#include "kformer/text/tokenizer.hpp"

namespace kformer::drivers {

/// Why a tokenizer went no further.
struct Stopped {
  std::string reason;
};

/// A tokenizer that looks for a request to stop before every text, between which nothing is half-written.
class StoppableTokenizer final : public Tokenizer {
 public:
  /// Both must outlive it.
  StoppableTokenizer(const Tokenizer& tokenizer, const StopRequest& stop)
      : m_tokenizer(tokenizer), m_stop(stop) {
    m_bos = tokenizer.bos();
    m_eos = tokenizer.eos();
    m_adds_bos = tokenizer.adds_bos();
    m_chat_template = tokenizer.chat_template();
    m_fingerprint = tokenizer.fingerprint();
  }

  /// \throws Stopped if the run should stop; so do the other two
  std::vector<std::int32_t> encode(std::string_view text) const override {
    check();
    return m_tokenizer.encode(text);
  }
  std::vector<std::int32_t> encode_with_special(std::string_view text) const override {
    check();
    return m_tokenizer.encode_with_special(text);
  }
  std::vector<std::int32_t> encode_chat(std::span<const ChatPiece> pieces) const override {
    check();
    return m_tokenizer.encode_chat(pieces);
  }

  std::string token_bytes(std::int32_t id, bool at_start) const override {
    return m_tokenizer.token_bytes(id, at_start);
  }
  std::int64_t vocab_size() const override { return m_tokenizer.vocab_size(); }
  std::string piece(std::int32_t id) const override { return m_tokenizer.piece(id); }
  std::optional<std::int32_t> id_of(std::string_view text) const override { return m_tokenizer.id_of(text); }

 private:
  void check() const {
    if (auto reason = m_stop.reason()) throw Stopped{*reason};
  }

  const Tokenizer& m_tokenizer;
  const StopRequest& m_stop;
};

}  // namespace kformer::drivers
