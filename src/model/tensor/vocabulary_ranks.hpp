// SPDX-License-Identifier: MIT
#pragma once

#include <cmath>
#include <limits>

#include "kformer/memory/arena.hpp"
#include "kformer/model/impl/vocabulary_ranks.hpp"
#include "kformer/ops/embedding.hpp"
#include "ops/cross_entropy/kokkos.hpp"

/// \file
/// Definitions of VocabularyRanks' members.

namespace kformer::Impl {

/// What the kernels of a loss read and write, for each of some rows.
template <class Exec, class T>
struct VocabularyLoss {
  using memory_space = typename Exec::memory_space;
  using C = compute_t<T>;

  VocabularySlice words;
  StridedVector<memory_space, const std::int32_t> targets;  ///< of all words
  BlockVector<memory_space, const std::int32_t> local;      ///< those of this rank
  BlockMatrix<memory_space, T> logits;
  StridedVector<memory_space, C> loss, lse;
  StridedVector<memory_space, const C> dloss;
  BlockVector<memory_space, C> own, all, standing;
  CrossEntropyOptions options;
  int ranks;
};

/// local[i] = the word counted from the first of this rank. Where it has another rank: `elsewhere`; where it is ignored:
/// `ignored`; where there is no such word: −1.
template <class Exec>
void localise(const Exec& exec, const VocabularySlice& words, std::int32_t elsewhere,
              std::optional<std::int32_t> ignore_index, std::int32_t ignored,
              const StridedVector<typename Exec::memory_space, const std::int32_t>& ids,
              const BlockVector<typename Exec::memory_space, std::int32_t>& local) {
  const bool ignores = ignore_index.has_value();
  const std::int32_t ignore = ignore_index.value_or(0);
  Kokkos::parallel_for(
      "kformer::LlamaModel::localise", Kokkos::RangePolicy<Exec>(exec, 0, ids.extent(0)),
      KOKKOS_LAMBDA(std::size_t i) {
        const std::int32_t id = ids(i);
        if (ignores && id == ignore)
          local(i) = ignored;
        else if (id < 0 || id >= words.whole)
          local(i) = -1;
        else
          local(i) =
              id < words.begin || id >= words.end ? elsewhere : id - static_cast<std::int32_t>(words.begin);
      });
}

/// x[i] = 0 where another rank knows the token.
template <class Exec, class T>
void clear_foreign_rows(const Exec& exec, const VocabularySlice& words,
                        const StridedVector<typename Exec::memory_space, const std::int32_t>& ids,
                        const BlockMatrix<typename Exec::memory_space, T>& x) {
  Kokkos::parallel_for(
      "kformer::LlamaModel::clear_foreign_rows",
      Kokkos::MDRangePolicy<Exec, Kokkos::Rank<2>>(
          exec, {0, 0}, {static_cast<std::int64_t>(x.extent(0)), static_cast<std::int64_t>(x.extent(1))}),
      KOKKOS_LAMBDA(std::int64_t i, std::int64_t j) {
        const std::int64_t id = ids(i);
        const bool known = id >= 0 && id < words.whole;
        if (known && (id < words.begin || id >= words.end)) x(i, j) = static_cast<T>(compute_t<T>(0));
      });
}

/// x = the rows of an embedding where they are of this rank's words, which `look_up` writes, and 0 elsewhere.
/// \param local (rows), overwritten
template <class T, class Exec, class F>
void embed_divided(const Exec& exec, const VocabularySlice& words,
                   const StridedVector<typename Exec::memory_space, const std::int32_t>& ids,
                   const BlockVector<typename Exec::memory_space, std::int32_t>& local,
                   const BlockMatrix<typename Exec::memory_space, T>& x, const F& look_up) {
  localise(exec, words, -1, {}, 0, ids, local);
  look_up(local);
  clear_foreign_rows<Exec, T>(exec, words, ids, x);
}

/// own = lse, and what the target adds to the loss among the words of this rank: (1 − ε)·(lse − z[target]), or 0 where
/// another rank has it. Where all words of this rank are impossible, that is ∞.
template <class Exec, class T>
void note_own(const Exec& exec, const VocabularyLoss<Exec, T>& p) {
  using C = compute_t<T>;
  const auto rows = static_cast<std::int64_t>(p.loss.extent(0));
  const C rest = static_cast<C>(1 - p.options.label_smoothing);
  Kokkos::parallel_for(
      "kformer::LlamaModel::note_own", Kokkos::RangePolicy<Exec>(exec, 0, rows), KOKKOS_LAMBDA(std::int64_t i) {
        const bool impossible = p.lse(i) < Kokkos::Experimental::finite_min_v<C>;
        const C loss = impossible ? Kokkos::Experimental::infinity_v<C> : p.loss(i);
        p.own(i) = p.lse(i);
        p.own(rows + i) = p.words.has(p.targets(i)) ? rest * loss : C(0);
      });
}

/// Adds what label smoothing gives the words of this rank: ε/vocabulary · Σ_v (lse − z[v]), in which no term is negative.
template <class Exec, class T, class Cap>
void add_smoothing(const Exec& exec, const VocabularyLoss<Exec, T>& p, const Cap& cap) {
  using C = compute_t<T>;
  const auto rows = static_cast<std::int64_t>(p.loss.extent(0));
  const std::int64_t words = p.words.size();
  const C share = TargetShares<C>(p.options.label_smoothing, p.words.whole).other;
  const std::int32_t ignore_index = p.options.ignore_index;
  Kokkos::parallel_for(
      "kformer::LlamaModel::add_smoothing", team_policy(exec, rows, words),
      KOKKOS_LAMBDA(const TeamMember<Exec>& team) {
        const std::int64_t row = team.league_rank();
        if (p.targets(row) == ignore_index) return;
        const T* x = &p.logits(row, 0);
        // Where all logits are −∞, so is lse.
        const C lowest = Kokkos::Experimental::finite_min_v<C>, lse = Kokkos::max(p.lse(row), lowest);
        C below = 0;
        Kokkos::parallel_reduce(
            Kokkos::TeamVectorRange(team, words),
            [&](std::int64_t v, C& partial) { partial += lse - cap.apply(static_cast<C>(x[v])); }, below);
        Kokkos::single(Kokkos::PerTeam(team), [&] { p.own(rows + row) += share * below; });
      });
}

/// The loss and lse among all words.
template <class Exec, class T>
void combine(const Exec& exec, const VocabularyLoss<Exec, T>& p) {
  using C = compute_t<T>;
  const auto rows = static_cast<std::int64_t>(p.loss.extent(0));
  const C z_loss = static_cast<C>(p.options.z_loss), rest = static_cast<C>(1 - p.options.label_smoothing);
  const C other = TargetShares<C>(p.options.label_smoothing, p.words.whole).other;
  Kokkos::parallel_for(
      "kformer::LlamaModel::combine", Kokkos::RangePolicy<Exec>(exec, 0, rows), KOKKOS_LAMBDA(std::int64_t i) {
        const std::int32_t target = p.targets(i);
        if (target == p.options.ignore_index) return;  // loss and lse are 0
        const auto lse_of = [&](int r) { return p.all(2 * r * rows + i); };
        C largest = lse_of(0);
        for (int r = 1; r < p.ranks; ++r) largest = Kokkos::max(largest, lse_of(r));
        C sum = 0;
        for (int r = 0; r < p.ranks; ++r) sum += Kokkos::exp(lse_of(r) - largest);
        const C lse = largest + Kokkos::log(sum);
        p.lse(i) = lse;
        if (target < 0 || target >= p.words.whole) return;  // the loss is NaN
        C loss = z_loss * lse * lse;
        for (int r = 0; r < p.ranks; ++r) {
          const VocabularySlice words(p.words.whole, r, p.ranks);
          const C share = other * static_cast<C>(words.size()) + (words.has(target) ? rest : C(0));
          if (share > C(0)) loss += p.all((2 * r + 1) * rows + i) + share * (lse - lse_of(r));
        }
        p.loss(i) = loss;
      });
}

/// standing = the logit of the word that stands for the target.
template <class Exec, class T>
void note_standing(const Exec& exec, const VocabularyLoss<Exec, T>& p) {
  using C = compute_t<T>;
  Kokkos::parallel_for(
      "kformer::LlamaModel::note_standing", Kokkos::RangePolicy<Exec>(exec, 0, p.loss.extent(0)),
      KOKKOS_LAMBDA(std::size_t i) {
        if (p.local(i) >= 0) p.standing(i) = static_cast<C>(p.logits(i, p.local(i)));
      });
}

/// The gradient of the word that stands for the target, with its share among all words: where another rank has the target,
/// that of any other word.
template <class Exec, class T>
void correct_standing(const Exec& exec, const VocabularyLoss<Exec, T>& p) {
  using C = compute_t<T>;
  const C pull = static_cast<C>(2 * p.options.z_loss);
  const SoftCap<C> cap{static_cast<C>(p.options.softcap)};
  const TargetShares<C> share(p.options.label_smoothing, p.words.whole);
  Kokkos::parallel_for(
      "kformer::LlamaModel::correct_standing", Kokkos::RangePolicy<Exec>(exec, 0, p.loss.extent(0)),
      KOKKOS_LAMBDA(std::size_t i) {
        const std::int32_t word = p.local(i);
        if (word < 0) return;
        const C logit = p.standing(i), expected = p.words.has(p.targets(i)) ? share.target : share.other;
        const C softmax = Kokkos::exp(cap.apply(logit) - p.lse(i));
        p.logits(i, word) =
            static_cast<T>((softmax * (1 + pull * p.lse(i)) - expected) * cap.derivative(logit) * p.dloss(i));
      });
}

template <class Exec, Scalar T>
VocabularyRanks<Exec, T>::VocabularyRanks(std::int64_t vocabulary, std::int64_t rows, Collectives<Exec>* ranks,
                                          std::int64_t hidden, Ledger& ledger)
    : m_words(vocabulary, ranks ? ranks->communicator().rank() : 0, ranks ? ranks->communicator().size() : 1),
      m_ranks(ranks) {
  if (!ranks) return;
  Arena<memory_space> arena;
  arena.add(m_local, rows);
  arena.add(m_own, 2 * rows);
  arena.add(m_all, 2 * rows * ranks->communicator().size());
  arena.add(m_standing, rows);
  arena.add(m_whole, hidden > 0 ? rows : 0, hidden);
  arena.add(m_partial, hidden > 0 ? rows : 0, hidden);
  m_block = arena.allocate(ledger, MemoryClass::workspace, "LlamaModel::vocabulary");
}

template <class Exec, Scalar T>
typename VocabularyRanks<Exec, T>::Matrix VocabularyRanks<Exec, T>::whole(const Exec& exec, const Matrix& x) {
  if (m_whole.extent(0) == 0) return x;
  m_ranks->all_gather(exec, x, m_whole, "tokens");
  return m_whole;
}

template <class Exec, Scalar T>
void VocabularyRanks<Exec, T>::embed(const Exec& exec, const Tokens& ids, const Matrix& embedding,
                                     const Matrix& x) {
  if (!m_ranks) return embedding_forward(exec, ids, embedding, x);
  const bool divides = m_partial.extent(0) > 0;
  const Matrix& own = divides ? m_partial : x;
  embed_divided<T>(exec, m_words, ids, local_of(ids), own,
                   [&](const auto& words) { embedding_forward(exec, words, embedding, own); });
  if (divides)
    m_ranks->reduce_scatter(exec, m_partial, x, "embedding");
  else
    m_ranks->all_reduce(exec, x, "embedding");
}

template <class Exec, Scalar T>
void VocabularyRanks<Exec, T>::embed_backward(const Exec& exec, const Tokens& ids, const Matrix& dx,
                                              const Gradient& dembedding) {
  if (!m_ranks) return embedding_backward(exec, ids, dx, dembedding);
  const Words local = local_of(ids);
  localise(exec, m_words, -1, {}, 0, ids, local);
  embedding_backward(exec, local, whole(exec, dx), dembedding);
}

// A sum with zeros is exact.
template <class Exec, Scalar T>
void VocabularyRanks<Exec, T>::logits(const Exec& exec, const Matrix& x, const Matrix& head,
                                      const Matrix& logits, bool batch_invariant) {
  if (!m_ranks) return linear_forward(exec, x, head, logits, {.batch_invariant = batch_invariant});
  Kokkos::deep_copy(exec, logits, static_cast<T>(C(0)));
  const std::pair own(static_cast<std::size_t>(m_words.begin), static_cast<std::size_t>(m_words.end));
  linear_forward(exec, x, head, Matrix(Kokkos::subview(logits, Kokkos::ALL, own)),
                 {.batch_invariant = batch_invariant});
  m_ranks->all_reduce(exec, logits, "logits");
}

template <class Exec, Scalar T>
void VocabularyRanks<Exec, T>::loss(const Exec& exec, const Loss& operands,
                                    const LinearCrossEntropyOptions& options,
                                    const BlockVector<memory_space, std::byte>& workspace) {
  const auto& [x, weight, targets, dloss, loss, dx, dweight] = operands;
  if (m_ranks && m_whole.extent(0) == 0) {
    divided_loss(exec, operands, options, workspace);
    if (dx.extent(0) > 0) m_ranks->all_reduce(exec, dx, "gradients of activations");
    return;
  }
  if (m_ranks) {
    Loss of_all = operands;
    of_all.x = whole(exec, x);
    if (dx.extent(0) > 0) of_all.dx = m_partial;
    divided_loss(exec, of_all, options, workspace);
    if (dx.extent(0) > 0) m_ranks->reduce_scatter(exec, m_partial, dx, "gradients of activations");
    return;
  }
  if (dx.extent(0) == 0) return linear_cross_entropy(exec, x, weight, targets, loss, options, workspace);
  linear_cross_entropy(exec,
                       LinearCrossEntropyOperands{.x = x,
                                                  .weight = weight,
                                                  .targets = targets,
                                                  .dloss = dloss,
                                                  .loss = loss,
                                                  .dx = dx,
                                                  .dweight = dweight},
                       options, workspace);
}

template <class Exec, Scalar T>
void VocabularyRanks<Exec, T>::divided_loss(const Exec& exec, const Loss& o,
                                            const LinearCrossEntropyOptions& options,
                                            const Workspace& workspace) {
  const CrossEntropyOptions& all_words = options.cross_entropy;
  LinearCrossEntropyOptions own_words = options;
  own_words.cross_entropy = {.softcap = all_words.softcap};
  const Words all_local = local_of(o.targets);
  localise(exec, m_words, 0, all_words.ignore_index, own_words.cross_entropy.ignore_index, o.targets,
           all_local);
  const bool with_gradients = o.dx.extent(0) > 0;
  linear_cross_entropy_by_chunks(
      exec, o.x, o.weight, all_local, o.loss, own_words, workspace,
      [&](const auto& rows, const auto& logits, const auto& lse, const Workspace& product) {
        const std::size_t count = rows.second - rows.first,
                          ranks = static_cast<std::size_t>(m_ranks->communicator().size());
        const auto first = [&](const auto& vector, std::size_t size) {
          return Kokkos::subview(vector, std::pair(std::size_t(0), size));
        };
        const auto local = Kokkos::subview(all_local, rows);
        const VocabularyLoss<Exec, T> p{
            m_words,
            Kokkos::subview(o.targets, rows),
            local,
            logits,
            Kokkos::subview(o.loss, rows),
            lse,
            with_gradients ? ConstNumbers(Kokkos::subview(o.dloss, rows)) : ConstNumbers(),
            first(m_own, 2 * count),
            first(m_all, 2 * count * ranks),
            first(m_standing, count),
            all_words,
            static_cast<int>(ranks)};
        note_own(exec, p);
        if (all_words.label_smoothing > 0)
          with_soft_cap<C>(all_words.softcap, [&](const auto& cap) { add_smoothing(exec, p, cap); });
        m_ranks->all_gather(exec, p.own, p.all, "loss");
        combine(exec, p);
        if (!with_gradients) return;
        note_standing(exec, p);
        CrossEntropyOptions backward = own_words.cross_entropy;
        backward.z_loss = all_words.z_loss;
        // So that each word of this rank has its share of all words.
        backward.label_smoothing = all_words.label_smoothing * static_cast<double>(m_words.size()) /
                                   static_cast<double>(m_words.whole);
        cross_entropy_backward(exec, logits, local, lse, p.dloss, logits, backward);
        correct_standing(exec, p);
        const auto x = Kokkos::subview(o.x, rows, Kokkos::ALL);
        if (o.dweight.extent(0) > 0) linear_backward_weight(exec, x, logits, o.dweight, {}, product);
        linear_backward_input(exec, o.weight, logits, Kokkos::subview(o.dx, rows, Kokkos::ALL), {}, product);
      });
}

}  // namespace kformer::Impl
