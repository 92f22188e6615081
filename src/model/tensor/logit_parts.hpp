// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/model/impl/vocabulary_ranks.hpp"

/// \file
/// Logits of a model whose words are divided among ranks.

namespace kformer::Impl {

/// The logits of some tokens, of the words of each rank. All have room for ⌈words / ranks⌉, because the parts of a gathered
/// array are equal.
template <class Exec, class T>
class LogitParts {
 public:
  using Memory = typename Exec::memory_space;
  using Matrix = BlockMatrix<Memory, T>;

  /// Elements of the memory for them.
  static std::int64_t elements(std::int64_t tokens, std::int64_t words, int ranks) {
    return ranks * tokens * width_of(words, ranks);
  }

  /// \param memory of `elements`
  LogitParts(const VocabularySlice& words, std::size_t tokens, const Communicator& ranks,
             const BlockVector<Memory, T>& memory)
      : m_words(words),
        m_tokens(tokens),
        m_width(static_cast<std::size_t>(width_of(words.whole, ranks.size()))),
        m_rank(static_cast<std::size_t>(ranks.rank())),
        m_ranks(static_cast<std::size_t>(ranks.size())),
        m_memory(memory) {}

  /// (tokens, words of this rank).
  Matrix own() const {
    return Matrix(m_memory.data() + m_rank * part(),
                  Kokkos::LayoutStride(m_tokens, m_width, static_cast<std::size_t>(m_words.size()), 1));
  }

  /// logits = those of all ranks, (tokens, words).
  void gather(const Exec& exec, Collectives<Exec>& ranks, const Matrix& logits) const {
    const auto all = elements_from(0, m_ranks * part());
    ranks.all_gather(exec, elements_from(m_rank * part(), part()), all, "logits");
    const std::int64_t words = m_words.whole, n = static_cast<std::int64_t>(m_ranks);
    const std::size_t width = m_width, of_rank = part(), columns = static_cast<std::size_t>(words);
    Kokkos::parallel_for(
        "kformer::LlamaDecoder::gather_logits", Kokkos::RangePolicy<Exec>(exec, 0, m_tokens * columns),
        KOKKOS_LAMBDA(std::size_t i) {
          const std::size_t token = i / columns, word = i % columns;
          // The rank r with ⌊words r / n⌋ <= word < ⌊words (r + 1) / n⌋.
          const std::int64_t r = (n * static_cast<std::int64_t>(word + 1) - 1) / words;
          const std::size_t place = word - static_cast<std::size_t>(words * r / n);
          logits(token, word) = all(static_cast<std::size_t>(r) * of_rank + token * width + place);
        });
  }

 private:
  static std::int64_t width_of(std::int64_t words, int ranks) { return (words + ranks - 1) / ranks; }
  std::size_t part() const { return m_tokens * m_width; }
  BlockVector<Memory, T> elements_from(std::size_t first, std::size_t count) const {
    return Kokkos::subview(m_memory, std::pair(first, first + count));
  }

  VocabularySlice m_words;
  std::size_t m_tokens, m_width, m_rank, m_ranks;
  BlockVector<Memory, T> m_memory;
};

}  // namespace kformer::Impl
