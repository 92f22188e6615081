// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "kformer/core/move_guard.hpp"
#include "kformer/memory/arena.hpp"
#include "kformer/memory/ledger.hpp"
#include "kformer/model/impl/context_ranks.hpp"
#include "kformer/model/layer_adapters.hpp"
#include "kformer/model/layer_options.hpp"
#include "kformer/model/layer_weights.hpp"
#include "kformer/model/passed_operand.hpp"
#include "kformer/model/weight_matrix.hpp"
#include "kformer/parallel/collectives.hpp"

/// \file
/// The decoder layer of the Llama family (Touvron et al., arXiv:2302.13971, §2.2), forward and backward.

namespace kformer {

namespace Impl {
template <class Exec, class T, std::size_t count>
struct LayerMap;
}

template <class Exec, Scalar T>
class LlamaDecoder;

/// Documents that follow each other in one row of tokens. Attention does not cross their borders, and positions
/// count from the first token of each.
template <class MemorySpace>
struct PackedTokens {
  StridedVector<MemorySpace, const std::int32_t> starts;     ///< (documents + 1), int32: from 0, never
                                                             ///< decreasing, to batch · seq; of whole
                                                             ///< sequences, whichever ranks have their tokens
  StridedVector<MemorySpace, const std::int32_t> positions;  ///< (batch · seq), int32, below seq; of the rank's
                                                             ///< tokens
};

/// One decoder layer:
///
///     h = x + attention(rope(q), rope(k), v) W_oᵀ   with  q, k, v = rms_norm(x) W_qkvᵀ [+ bias],
///                                                   [q, k = rms_norm of each head,]
///     y = h + (silu(g) · u) W_downᵀ                 with  g, u = rms_norm(h) W_gate_upᵀ.
///
/// The layer owns weights, gradients, saved activations and workspace, all booked in a ledger. It allocates
/// only in its constructor. q, k, v are one product, and so are gate and up. In inference, arrays that are never
/// alive at the same time share their memory. The layers of a model share tables and workspace, and in inference
/// everything but their weights.
///
/// `LayerOptions::recompute` says what forward saves. `none` keeps everything that backward reads. With
/// `pointwise` backward computes the two norms and the SwiGLU product again. Layers with `layer` that share keep
/// nothing of their own: backward runs forward again, except for the layer that ran last, whose arrays are still
/// there. The gradients have the same bits.
///
/// With `LayerOptions::lora` the linear maps have adapters: `x Wᵀ` becomes `x Wᵀ + s (x Aᵀ) Bᵀ`. Then they alone
/// learn: the weights have no gradients, and no memory for any. In training they may lose elements of x:
/// `x Wᵀ + s (drop(x) Aᵀ) Bᵀ`, see `set_dropout`. With `LoraConfig::magnitudes` (DoRA) a map computes
/// `m/n ⊙ (x Wᵀ + s (x Aᵀ) Bᵀ)` with n = ‖W + s B A‖ of each row, a constant in backward; a bias is added to that.
/// With both it computes, as PEFT does, `x Wᵀ + (m/n − 1) ⊙ (drop(x) Wᵀ) + m/n ⊙ s (drop(x) Aᵀ) Bᵀ`. Each forward
/// measures the rows anew.
///
/// `LayerOptions::formats` says which of the seven matrices then stay quantised ("self_attn.q_proj.weight", …).
/// There is never a dense copy of one: its blocks become numbers in tiles of the products, forward and backward.
/// Where the matrices of q, k and v, or of gate and up, are split, the gradient of their input is rounded to T
/// behind each.
///
/// Regions for Kokkos Tools: gains, attention_norm, qkv, rope, attention, out_projection, mlp_norm, gate_up, swiglu,
/// down. In forward the rotation belongs to qkv and the activation to gate_up: each follows its product tile by
/// tile.
///
/// With `LayerOptions::tensor` each of n ranks has 1/n of the heads and of the features inside the MLP: rows of the
/// weights of q, k, v, gate and up, columns of those of o and down, which `Parameter::slice` names. x, y, their gradients
/// and the norms are whole on every rank. The ranks add up what the products of o and down return in forward, and the
/// gradients of what q, k, v and of what gate, up read in backward: 4 sums of (batch · seq, hidden), rounded to T on each
/// rank before.
///
/// With `LayerOptions::sequence_parallel` x, y, their gradients and what norms return have the rows [R r / n, R (r + 1) / n) of
/// the R = batch · seq on rank r. They are gathered before a product of q, k, v or gate, up, and the sums behind o and down
/// leave each rank its rows. The same bytes are sent in forward; backward gathers them a second time.
///
/// With `LayerOptions::context` each of n ranks has two chunks of every sequence, and the whole weights. The keys and values
/// of all tokens reach attention as `LayerOptions::context_exchange` says (`Impl::ContextRanks`); everything else concerns
/// the rank's tokens alone.
///
/// The members are compiled into the library, for every execution space of Kokkos and every storage type.
template <class Exec, Scalar T>
class DecoderLayer {
 public:
  /// The layer's memory space.
  using memory_space = typename Exec::memory_space;
  /// A (rows, columns) array that the layer writes.
  using Matrix = BlockMatrix<memory_space, T>;
  /// A (rows, columns) array that the layer reads.
  using ConstMatrix = BlockMatrix<memory_space, const T>;

  /// Books and allocates everything. Weights are undefined until they are written.
  /// \param config     the layer's extents
  /// \param shape      the tokens it will work on
  /// \param options    how attention is computed, whether there will be a backward, …
  /// \param ledger     where the memory is booked
  /// \param share_with a layer made with the same configuration, shape and options but for `recompute` and
  ///                   `formats`; this one uses its memory for everything but parameters and what backward
  ///                   needs. Such layers must not run at the same time.
  /// \param behind     a layer whose backward has always ended when that of this one starts. Without
  ///                   `LayerOptions::accumulate`, this layer's gradients lie over what it saved, if they fit.
  /// \param scratch    bytes of `scratch()`
  /// \throws DimensionMismatch if the configuration is invalid, or differs from that of `share_with`
  /// \throws NotSupported if options cannot be combined
  /// \throws OutOfMemory with the ledger
  DecoderLayer(const LlamaConfig& config, LayerShape shape, const LayerOptions& options, Ledger& ledger,
               const DecoderLayer* share_with = nullptr, const DecoderLayer* behind = nullptr,
               std::size_t scratch = 0);

  /// Fills the rotary tables, and in training sets every gradient to zero. Call it once before `forward`;
  /// layers that share need the tables only once, and `prepare` skips them then.
  void prepare(const Exec& exec);

  /// The weights, and in training their gradients, by published name. Weights with adapters have no gradients. Those
  /// that stay quantised are not among them.
  std::vector<Parameter> parameters() const;

  /// All weights as loading sees them, by published name.
  std::vector<WeightSlot> weights() const;

  /// The adapters, and in training their gradients: "self_attn.q_proj.lora_A.weight" (rank, in),
  /// "self_attn.q_proj.lora_B.weight" (out, rank), … and with magnitudes "self_attn.q_proj.lora_magnitude_vector" (out).
  /// Ranks that divide the layer have the rows and columns that they have of the weight, and the rest whole.
  std::vector<Parameter> adapters() const;

  /// Adds `s B A` of every adapter to its weight, rounded once, and sets B to 0. With magnitudes the weight becomes
  /// `m/n ⊙ (W + s B A)`, rounded once, and m the norms of its rows.
  /// \throws NotSupported if a weight stays quantised
  void merge_adapters(const Exec& exec);

  /// Sets magnitudes to the norms of the rows of W + s B A, so that they change nothing: where training starts. Without
  /// effect if there are none.
  void reset_magnitudes(const Exec& exec);

  /// Switches the adapters on or off. Off, the layer computes as one without adapters does, to the bit, and has no
  /// backward. A change forgets what `forward` saved. Without effect if there are no adapters.
  void use_adapters(AdapterUse use);

  /// Turns dropout of the adapters (`LoraConfig::dropout`) on or off, for each forward that follows and its backward. A
  /// layer starts without.
  /// \param draw  which random numbers; none: nothing is lost
  /// \param layer number of this layer in its model
  /// \throws NotSupported in inference, if there is a draw
  void set_dropout(const std::optional<DropoutDraw>& draw, std::int64_t layer = 0);

  /// The operations among the ranks that divide the layer (`LayerOptions::tensor`), common to layers that share; null
  /// without others.
  Collectives<Exec>* tensor_ranks() const { return m_shared->ranks ? &*m_shared->ranks : nullptr; }

  /// The ranks that divide the tokens (`LayerOptions::context`), common to layers that share; null without others.
  Impl::ContextRanks<Exec, T>* context_ranks() const {
    return m_shared->context ? &*m_shared->context : nullptr;
  }

  /// Workspace of the layers that share, for what comes between their calls: `forward` and `backward` overwrite it,
  /// and what they leave there is read by nobody.
  const BlockVector<memory_space, std::byte>& scratch() const { return m_scratch; }

  /// Sets every gradient to zero, between one step of training and the next. Without effect in inference, and
  /// without `LayerOptions::accumulate`.
  void zero_gradients(const Exec& exec);

  /// y = layer(x). In training, saves what `backward` needs.
  /// \param exec   the instance everything is launched on; nothing is fenced or allocated
  /// \param x      (batch · seq, hidden), T
  /// \param y      (batch · seq, hidden), T, overwritten; not `x`
  /// \param packed the documents in x, if `LayerOptions::packed` is set; otherwise not read
  /// \throws NotSupported if `prepare` was not called
  /// \throws DimensionMismatch if extents do not match
  void forward(const Exec& exec, const ConstMatrix& x, const Matrix& y,
               const PackedTokens<memory_space>& packed = {});

  /// Refused at compile time: an operand does not fit.
  template <class = void>
  void forward(const Exec&, const Impl::Passed<Impl::Role::x, ConstMatrix>&,
               const Impl::Passed<Impl::Role::y, Matrix>&, const PackedTokens<memory_space>& = {}) {}

  /// Gradients of the last `forward` of the slot, any number of times. `dx` is overwritten, parameter gradients are
  /// accumulated, or overwritten without `LayerOptions::accumulate`.
  /// \param exec   the instance everything is launched on
  /// \param x      (batch · seq, hidden), T, as passed to `forward`
  /// \param dy     (batch · seq, hidden), T
  /// \param dx     (batch · seq, hidden), T, overwritten; not `x` or `dy`
  /// \param packed as passed to `forward`
  /// \throws NotSupported in inference, with adapters that are switched off, or if there was no `forward` in the slot, or
  ///                      one that failed
  /// \throws DimensionMismatch if extents do not match
  void backward(const Exec& exec, const ConstMatrix& x, const ConstMatrix& dy, const Matrix& dx,
                const PackedTokens<memory_space>& packed = {});

  /// Refused at compile time: an operand does not fit.
  template <class = void>
  void backward(const Exec&, const Impl::Passed<Impl::Role::x, ConstMatrix>&,
                const Impl::Passed<Impl::Role::dy, ConstMatrix>&, const Impl::Passed<Impl::Role::dx, Matrix>&,
                const PackedTokens<memory_space>& = {}) {}

  /// The gradients that `backward` leaves out with `LayerOptions::split_backward`: of all weights, or of the adapters with
  /// their magnitudes. They are accumulated, or overwritten without `LayerOptions::accumulate`, and have the bits that
  /// `backward` makes without `split_backward`; until now it has kept those of norms and biases in the slot. Each `backward`
  /// allows one call. Dropout must be as in `backward`.
  /// \param exec the instance everything is launched on
  /// \param x    (batch · seq, hidden), T, as passed to `forward`
  /// \throws NotSupported without `split_backward`, or if there was no `backward` since the last call in this slot
  /// \throws DimensionMismatch if extents do not match
  void backward_weights(const Exec& exec, const ConstMatrix& x);

  /// Refused at compile time: an operand does not fit.
  template <class = void>
  void backward_weights(const Exec&, const Impl::Passed<Impl::Role::x, ConstMatrix>&) {}

  /// Chooses which micro-batch `forward`, `backward` and `backward_weights` work on: each slot has what one forward saved.
  /// A layer starts with slot 0.
  /// \param slot 0 … `LayerOptions::slots` − 1
  /// \throws NotSupported if there is no such slot
  void use_slot(std::int64_t slot);

  /// Whether the memory has room for sequences of another length. Arrays need less for shorter ones, but workspaces of some
  /// kernels need more for some that are little shorter.
  /// \param seq_len from 1 to that of the constructor
  bool has_room_for(std::int64_t seq_len);

  /// Takes sequences of another length from now on, in the memory of the constructor: operands have batch · seq_len rows of
  /// this length. Forgets what `forward` saved, in all slots.
  /// \param seq_len from 1 to that of the constructor; see `has_room_for`
  /// \throws NotSupported if there is no room, or if ranks divide the tokens
  void use_seq_len(std::int64_t seq_len);

 private:
  // A decoder may borrow the weights.
  friend class LlamaDecoder<Exec, T>;

  using C = compute_t<T>;
  using Vector = BlockVector<memory_space, C>;
  using Bytes = BlockVector<memory_space, std::byte>;
  using Unmanaged = Kokkos::MemoryTraits<Kokkos::Unmanaged>;
  // (batch, seq, heads, head_dim), a slice of a wider array.
  using Heads = Kokkos::View<T****, Kokkos::LayoutStride, memory_space, Unmanaged>;

  // What layers that share have in common. A block is allocated by the first layer that needs it.
  struct Shared {
    MemoryBlock<memory_space> tables, activations, workspace;
    std::vector<MemoryBlock<memory_space>> gradients;  // in which layers take turns
    std::size_t next_turn = 0;
    std::optional<Collectives<Exec>> ranks;              // that divide the layers
    std::optional<Impl::ContextRanks<Exec, T>> context;  // that divide the tokens
    bool tables_filled = false;
    const DecoderLayer* computed = nullptr;  // the layer whose values are in `activations`
  };

  void place_gradients(Ledger& ledger, const DecoderLayer* behind);
  void place_tables(Ledger& ledger);
  Arena<memory_space> activation_arena();
  void place_activations(Ledger& ledger);
  Arena<memory_space> workspace_arena(std::size_t scratch, Matrix& normed, Matrix& product);
  void place_workspace(Ledger& ledger, std::size_t scratch);
  const MemoryBlock<memory_space>& activation_block() const {
    return keeps_nothing() ? m_shared->activations : m_activation_blocks[m_slot];
  }
  void bind_activations();
  void use_workspace(const Matrix& normed, const Matrix& product);
  std::size_t product_workspace_bytes() const;
  void place_gains(Ledger& ledger);
  std::size_t norm_workspace_bytes() const;
  std::size_t attention_workspace_bytes() const;
  std::int64_t widest_input() const;
  std::int64_t widest_gains() const;

  // One of the layer's two norms.
  struct Norm {
    const char* region;
    BlockVector<memory_space, T> weight;
    Vector rstd, dweight;
    Matrix y;
  };
  Norm attention_norm() const {
    return {"attention_norm", m_weight.norm1, m_rstd1, m_vectors.norm1, m_normed1};
  }
  Norm mlp_norm() const { return {"mlp_norm", m_weight.norm2, m_rstd2, m_vectors.norm2, m_normed2}; }
  void normalise(const Exec& exec, const Norm& norm, const ConstMatrix& x);
  void norm_gradient(const Exec& exec, const Norm& norm, const ConstMatrix& x, const ConstMatrix& d_residual,
                     const Matrix& dx);

  using Packed = PackedTokens<memory_space>;
  void clear_gradients(const Exec& exec);
  void clear_vectors(const Exec& exec);
  void add_vectors(const Exec& exec);
  void update_gains(const Exec& exec);
  void save(const Exec& exec, const ConstMatrix& x, const Packed& packed);
  void project(const Exec& exec, const Packed& packed);
  void activate(const Exec& exec);
  void attention(const Exec& exec, const Packed& packed);
  ConstMatrix whole(const Exec& exec, const ConstMatrix& own);
  ConstMatrix whole_unless_split(const Exec& exec, const ConstMatrix& own);
  const Matrix& summand(const Matrix& own) const;
  void add_up(const Exec& exec, const Matrix& own, const char* region);
  template <class M>
  void add_product(const Exec& exec, const M& map, const Matrix& x, const ConstMatrix& residual,
                   const Matrix& y);
  template <class M>
  void reverse_product(const Exec& exec, const M& map, const ConstMatrix& x, const ConstMatrix& dy,
                       const Matrix& dx) const;
  void mlp_gradient(const Exec& exec, const ConstMatrix& dy, bool restore);
  void restore_product(const Exec& exec);
  void attention_gradient(const Exec& exec, const Packed& packed);
  void head_norm_gradient(const Exec& exec);
  template <class F>
  void for_positions(const Packed& packed, const Heads& q, const Heads& k, F rotate) const;

  Heads queries(const Matrix& qkv) const;
  Heads keys(const Matrix& qkv) const;
  Heads values(const Matrix& qkv) const;
  bool adapts() const { return m_options.lora.any(); }
  bool uses_adapters() const { return adapts() && m_adapter_use == AdapterUse::on; }
  template <std::size_t count>
  using Map = Impl::LayerMap<Exec, T, count>;
  struct Gains;
  template <std::size_t count>
  Map<count> map(const Matrix& weight, const typename LayerWeights<memory_space, T>::Split& split,
                 const BlockMatrix<memory_space, C>& dweight,
                 const AdapterMatrices<memory_space, T, count>& adapter,
                 const AdapterMatrices<memory_space, C, count>& gradient, const Matrix& xa, const Gains& gains,
                 Projection first) const;
  Map<3> qkv_map() const;
  Map<1> out_map() const;
  Map<2> gate_up_map() const;
  Map<1> down_map() const;
  bool divides_states() const { return tensor_ranks() && m_options.sequence_parallel; }
  // Tokens of x, y and what norms return.
  std::int64_t state_rows() const;
  std::int64_t rotated_heads() const { return m_config.num_attention_heads + m_config.num_key_value_heads; }
  bool may_drop() const { return trains() && adapts() && m_options.lora.dropout > 0; }
  bool puts_off_vectors() const { return m_options.split_backward && !adapts(); }
  bool has_magnitudes() const { return adapts() && m_options.lora.magnitudes; }
  bool trains() const { return m_options.mode == LayerMode::training; }
  bool keeps_rotated() const { return m_config.qk_norm && trains(); }
  bool keeps_pointwise() const { return trains() && m_options.recompute == Recompute::none; }
  bool keeps_nothing() const { return !trains() || m_options.recompute == Recompute::layer; }
  // The sequences that attention sees: packed documents are parts of one row, unless they lie across ranks. Without
  // tokens there are none.
  LayerShape sequences() const {
    if (m_options.packed && !context_ranks()) return {1, m_shape.rows()};
    return m_shape.rows() == 0 ? LayerShape{0, 0} : m_shape;
  }

  // What the arrays of a slot hold.
  struct Pass {
    bool ran_forward = false;   // what `backward` reads
    bool weights_wait = false;  // what `backward_weights` reads
  };

  LlamaConfig m_config;
  LayerShape m_shape;      // of the sequences that it works on
  std::int64_t m_seq_len;  // of the constructor
  LayerOptions m_options;
  Impl::MoveGuard m_guard;
  std::vector<Pass> m_passes;  // by slot
  std::size_t m_slot = 0;
  bool m_prepared = false;
  AdapterUse m_adapter_use = AdapterUse::on;

  LayerWeights<memory_space, T> m_weight;
  LayerWeights<memory_space, C> m_gradient;
  // Gradients of what is no matrix, as `backward` makes them: those of m_gradient or, where `backward_weights` follows, of
  // the slot, until it adds them.
  struct Vectors {
    Vector norm1, norm2, q_norm, k_norm, bias;
  };
  Vectors m_vectors;
  LayerAdapters<memory_space, T> m_adapter;
  LayerAdapters<memory_space, C> m_adapter_gradient;
  std::shared_ptr<Shared> m_shared;
  std::vector<MemoryBlock<memory_space>> m_activation_blocks;  // by slot, unless they are shared
  std::size_t m_room = 0;  // of each, for gradients: what a layer that keeps arrays has under every policy
  BlockMatrix<memory_space, C> m_cos, m_sin;

  // Saved by forward. m_rotated are q and k as attention takes them: columns of m_qkv, except in training with
  // norms of heads, whose backward needs the inputs of the norms.
  Matrix m_qkv, m_rotated, m_attention, m_h, m_gate_up;
  Vector m_rstd1, m_rstd2;
  BlockMatrix<memory_space, C> m_q_rstd, m_k_rstd;                                    // (rows, heads)
  Kokkos::View<C***, Kokkos::LayoutRight, memory_space, Unmanaged> m_lse;             // (batch, heads, seq)
  Kokkos::View<T****, Kokkos::LayoutRight, memory_space, Unmanaged> m_probabilities;  // (…, q_len, kv_len)

  // Saved with Recompute::none, otherwise workspace: the outputs of the norms, and the product of gate and up.
  Matrix m_normed1, m_normed2, m_product;

  Matrix m_qkv_xa, m_out_xa, m_gate_up_xa, m_down_xa;  // of the adapters
  // Of magnitudes, by map: n and m/n of all rows, of the last forward.
  struct Gains {
    Vector norm, gain;
  };
  Gains m_qkv_gains, m_out_gains, m_gate_up_gains, m_down_gains;
  MemoryBlock<memory_space> m_gain_block;
  std::optional<DropoutDraw> m_draw;
  std::int64_t m_layer = 0;  // for the draw
  // Workspace: in backward the gradients on their way.
  Matrix m_d_product, m_d_gate_up, m_d_normed, m_d_attention, m_d_qkv, m_dh, m_dxa;
  Matrix m_dy;  // saved by backward, like m_d_gate_up, m_d_qkv and m_dh, where `backward_weights` follows
  Matrix m_whole, m_partial;  // of all tokens, where ranks divide those of states: gathered, and to be summed
  Bytes m_unscaled;           // of magnitudes: the product of the map that runs, without gain
  Bytes m_dropped;            // what the adapters of the map that runs see of x
  Bytes m_product_workspace, m_norm_workspace, m_attention_workspace, m_scratch;
};

}  // namespace kformer
