// SPDX-License-Identifier: MIT
// A checkpoint into models and back into a file.
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "io/large_nf4.hpp"
#include "io/resident.hpp"
#include "io/scratch_directory.hpp"
#include "kformer/core/view_of.hpp"
#include "kformer/io/safetensors.hpp"
#include "kformer/load/llama_config.hpp"
#include "kformer/load/load_weights.hpp"
#include "kformer/model/llama_decoder.hpp"
#include "kformer/parallel/communicator.hpp"
#include "load/divided_weights.hpp"
#include "support/errors.hpp"
#include "support/source_files.hpp"
#include "support/test_tensor.hpp"

namespace kformer::Testing {
namespace {

using Exec = KFORMER_TEST_SPACE;
using Space = Exec::memory_space;

Checkpoint open_checked() {
  Checkpoint checkpoint = Checkpoint::open(tiny_llama());
  checkpoint.check_against(checkpoint.model());
  return checkpoint;
}

const std::vector<std::int32_t> text{256, 'O', 'n', 'c', 'e', ' ', 'u', 'p'};

// The logits after every token of the text, by a model for whole sequences.
template <class T>
std::vector<double> whole_sequence(const Checkpoint& checkpoint, const std::shared_ptr<Ledger>& ledger) {
  const LlamaConfig config = llama_config(checkpoint.model());
  const auto tokens = static_cast<std::int64_t>(text.size());
  LlamaModel<Exec, T> model(config, {1, tokens}, {.mode = LayerMode::inference}, *ledger);
  load_weights(Exec(), checkpoint, model, *ledger);
  model.prepare(Exec());
  TestTensor<Exec, std::int32_t> ids({tokens});
  ids.fill([](std::size_t i) { return text[i]; });
  TestTensor<Exec, T> logits({tokens, config.vocab_size});
  model.forward(Exec(), ids.template view<1>());
  model.logits(Exec(), logits.template view<2>());
  Exec().fence("kformer::Testing::load");
  return logits.template read<double>().values();
}

}  // namespace

BOOST_AUTO_TEST_SUITE(load_weights)

BOOST_AUTO_TEST_CASE(every_weight_is_that_of_the_file) {
  const Checkpoint checkpoint = open_checked();
  const auto file = SafetensorsFile::open(tiny_llama() / "model.safetensors");
  const auto ledger = Ledger::create();
  LlamaModel<Exec, float> model(llama_config(checkpoint.model()), {1, 4}, {}, *ledger);
  kformer::load_weights(Exec(), checkpoint, model, *ledger);
  for (const Parameter& parameter : model.parameters()) {
    const std::vector<double> expected = file.read_f64(parameter.name);
    std::vector<float> weights(expected.size());
    Kokkos::deep_copy(Kokkos::View<float*, Kokkos::HostSpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>>(
                          weights.data(), weights.size()),
                      Kokkos::View<float*, Space, Kokkos::MemoryTraits<Kokkos::Unmanaged>>(
                          static_cast<float*>(parameter.weight.data), weights.size()));
    BOOST_TEST(std::vector<double>(weights.begin(), weights.end()) == expected, parameter.name);
  }
}

BOOST_AUTO_TEST_CASE(ranks_that_divide_a_model_load_their_parts) {
  const ScratchDirectory folder;
  const Checkpoint checkpoint = open_checked();
  const auto file = SafetensorsFile::open(tiny_llama() / "model.safetensors");
  int by_columns = 0;
  for (const int rank : {0, 1}) {
    const auto ledger = Ledger::create();
    LlamaModel<Exec, float> model(llama_config(checkpoint.model()), {1, 4},
                                  {.tensor = std::make_shared<LoneCommunicator>(rank, 2)}, *ledger);
    kformer::load_weights(Exec(), checkpoint, model, *ledger);
    for (const Parameter& p : model.parameters()) {
      const std::vector<double> whole = file.read_f64(p.name);
      std::vector<float> weights(static_cast<std::size_t>(p.weight.size()));
      Kokkos::deep_copy(Kokkos::View<float*, Kokkos::HostSpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>>(
                            weights.data(), weights.size()),
                        Kokkos::View<float*, Space, Kokkos::MemoryTraits<Kokkos::Unmanaged>>(
                            static_cast<float*>(p.weight.data), weights.size()));
      const bool columns = p.slice.divides() && p.slice.axis == 1;
      by_columns += columns;
      const std::size_t width = p.weight.rank > 1 ? static_cast<std::size_t>(p.weight.extent[1]) : 1;
      const std::size_t first_row = columns ? 0 : static_cast<std::size_t>(p.slice.begin);
      const std::size_t first_column = columns ? static_cast<std::size_t>(p.slice.begin) : 0;
      const std::size_t pitch = columns ? static_cast<std::size_t>(p.slice.whole) : width;
      std::vector<double> expected;
      for (std::size_t i = 0; i < weights.size(); ++i)
        expected.push_back(whole[(first_row + i / width) * pitch + first_column + i % width]);
      BOOST_TEST(std::vector<double>(weights.begin(), weights.end()) == expected, p.name);
    }
    check_error<NotSupported>(
        [&] { save_weights(Exec(), std::span<const Parameter>(model.parameters()), folder / "part", *ledger); },
        "kformer::save_weights: this rank has a part of model.embed_tokens.weight alone; name the ranks "
        "that divide it");
  }
  BOOST_TEST(by_columns > 0);
}

// Blocks of columns lie apart in the file; those that a rank would have to share are refused.
BOOST_AUTO_TEST_CASE(parts_of_quantised_weights_are_made_dense) {
  for (const QuantizedFormat format : {QuantizedFormat::q8_0, QuantizedFormat::q4_1})
    for (const int axis : {0, 1}) {
      const std::int64_t rows = 6, columns = 128, begin = axis == 0 ? 2 : 32, count = axis == 0 ? 3 : 64;
      TestTensor<Exec, float> numbers({rows, columns}), whole({rows, columns});
      numbers.fill([](std::size_t i) { return static_cast<double>(i * 37 % 101) - 50; });
      const Kokkos::View<std::byte*, Space> blocks("blocks", quantized_bytes(format, rows, columns));
      const QuantizedOutput matrix{format, blocks.data(), rows, columns};
      quantize(Exec(), numbers.view<2>(), matrix);
      dequantize(Exec(), matrix, whole.view<2>());
      const auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), blocks);
      const CheckpointTensor tensor{StoredType{format},
                                    {static_cast<std::size_t>(rows), static_cast<std::size_t>(columns)},
                                    {host.data(), host.size()}};
      const TestTensor<Exec, float> part(
          axis == 0 ? std::vector<std::int64_t>{count, columns} : std::vector<std::int64_t>{rows, count},
          Rows::packed);
      const auto ledger = Ledger::create();
      const auto staging = ledger->allocate<Space>(MemoryClass::io, "staging", host.size());
      WeightSlot slot{"w", part.ref(), {}, {.whole = axis == 0 ? rows : columns, .begin = begin, .axis = axis}};
      std::vector<std::byte> gathered;
      load_dense(Exec(), Impl::part_of_tensor(tensor, slot, gathered), slot.dense, staging, *ledger);
      const auto expected = whole.read<double>().values(), found = part.read<double>().values();
      for (std::int64_t i = 0; i < std::ssize(found); ++i) {
        const std::int64_t width = axis == 0 ? columns : count, row = i / width + (axis == 0 ? begin : 0),
                           column = i % width + (axis == 1 ? begin : 0);
        BOOST_REQUIRE(found[static_cast<std::size_t>(i)] ==
                      expected[static_cast<std::size_t>(row * columns + column)]);
      }
      if (axis == 0) continue;
      slot.slice.begin = 16;
      check_error<NotSupported>([&] { Impl::part_of_tensor(tensor, slot, gathered); },
                                std::string("kformer::load_weights: w is quantised (") + to_string(format) +
                                    ") in the checkpoint in blocks that ranks would divide; expand the "
                                    "checkpoint first, or take another "
                                    "number of ranks");
    }
}

BOOST_AUTO_TEST_CASE(saved_weights_are_loaded_again_bit_for_bit) {
  const ScratchDirectory folder;
  const Checkpoint checkpoint = open_checked();
  const auto ledger = Ledger::create();
  LlamaModel<Exec, bf16> model(llama_config(checkpoint.model()), {1, 4}, {}, *ledger);
  kformer::load_weights(Exec(), checkpoint, model, *ledger);
  save_weights(Exec(), std::span<const Parameter>(model.parameters()), folder / "model.safetensors", *ledger);
  const auto before = SafetensorsFile::open(tiny_llama() / "model.safetensors");
  const auto after = SafetensorsFile::open(folder / "model.safetensors");
  BOOST_TEST(after.names() == before.names(), boost::test_tools::per_element());
  for (const std::string& name : before.names()) {
    const TensorEntry &a = before.at(name), &b = after.at(name);
    BOOST_TEST(b.dtype == "BF16", name);
    BOOST_TEST(b.shape == a.shape, boost::test_tools::per_element());
    BOOST_TEST(std::equal(a.bytes.begin(), a.bytes.end(), b.bytes.begin(), b.bytes.end()), name);
  }
}

BOOST_AUTO_TEST_CASE(a_checkpoint_of_saved_weights_says_the_same) {
  const ScratchDirectory folder;
  const auto ledger = Ledger::create();
  const Checkpoint checkpoint = open_checked();
  LlamaModel<Exec, double> model(llama_config(checkpoint.model()), {1, 4}, {}, *ledger);
  kformer::load_weights(Exec(), checkpoint, model, *ledger);
  save_weights(Exec(), std::span<const Parameter>(model.parameters()), folder / "model.safetensors", *ledger);
  put_contents(folder / "config.json", contents_of(tiny_llama() / "config.json"));
  const auto first = whole_sequence<double>(checkpoint, ledger);
  const auto second = whole_sequence<double>(Checkpoint::open(folder.path()), ledger);
  BOOST_TEST(std::isfinite(first.front()));
  BOOST_TEST(first == second);
}

BOOST_AUTO_TEST_CASE(a_model_of_other_extents_is_refused) {
  const Checkpoint checkpoint = open_checked();
  const auto ledger = Ledger::create();
  LlamaConfig config = llama_config(checkpoint.model());
  config.intermediate_size *= 2;
  LlamaModel<Exec, float> model(config, {1, 4}, {}, *ledger);
  check_error<FileError>(
      [&] { kformer::load_weights(Exec(), checkpoint, model, *ledger); },
      "kformer::load_weights: model.layers.0.mlp.gate_proj.weight has the extents [128, 48] in the "
      "checkpoint, and [256, 48] in the model; make the model with "
      "llama_config(checkpoint.model())");
}

BOOST_AUTO_TEST_CASE(a_model_that_is_only_counted_is_refused) {
  const Checkpoint checkpoint = open_checked();
  const auto counting = Ledger::create(Ledger::Mode::count), ledger = Ledger::create();
  LlamaModel<Exec, float> model(llama_config(checkpoint.model()), {1, 4}, {}, *counting);
  const std::string lacks =
      ": model.embed_tokens.weight has no memory (null pointer, or a ledger that only counts); allocate it";
  check_error<DimensionMismatch>([&] { kformer::load_weights(Exec(), checkpoint, model, *ledger); },
                                 "kformer::load_weights" + lacks);
  check_error<DimensionMismatch>(
      [&] { save_weights(Exec(), model.parameters(), "never_written.safetensors", *ledger); },
      "kformer::save_weights" + lacks);
}

BOOST_AUTO_TEST_CASE(staging_is_booked_while_it_is_there) {
  const Checkpoint checkpoint = open_checked();
  BOOST_TEST(quantized_weights(checkpoint).empty());
  BOOST_TEST(staging_bytes(checkpoint, {}) == 0u);
}

// Weights of bitsandbytes are copied when somebody reads them, which a forecast does not.
BOOST_AUTO_TEST_CASE(a_forecast_copies_no_weights, *boost::unit_test::precondition(counts_resident_files)) {
  constexpr std::size_t codes = std::size_t(16) << 20, little = std::size_t(2) << 20;
  const ScratchDirectory folder;
  put_large_nf4(test_data("nf4_case/llama"), folder, codes);
  const Checkpoint checkpoint = Checkpoint::open(folder.path());
  const std::size_t before = resident_bytes_of_copies();
  const auto formats = quantized_weights(checkpoint);
  const std::size_t staging = staging_bytes(checkpoint, {});
  BOOST_TEST(resident_bytes_of_copies() <= before + little);
  BOOST_TEST(formats.contains(large_matrix));
  BOOST_TEST(staging > codes);
  BOOST_TEST(staging == checkpoint.at(large_matrix).bytes.size());
}

// 64 MiB in matrices of up to 4 MiB. What was copied of the file must not stay in memory beside the copies.
BOOST_AUTO_TEST_CASE(a_file_is_in_memory_one_tensor_at_a_time,
                     *boost::unit_test::precondition(counts_resident_files)) {
  const ScratchDirectory folder;
  const auto ledger = Ledger::create();
  put_contents(
      folder / "config.json",
      R"({"model_type": "llama", "hidden_size": 512, "num_attention_heads": 8, "num_key_value_heads": 8,
                   "intermediate_size": 2048, "num_hidden_layers": 4, "vocab_size": 64, "rms_norm_eps": 1e-5,
                   "max_position_embeddings": 64, "tie_word_embeddings": true})");
  const LlamaConfig config = llama_config(read_model_config(folder / "config.json"));
  LlamaModel<Exec, float> model(config, {1, 4}, {}, *ledger);
  for (const Parameter& p : model.parameters())
    Kokkos::deep_copy(Kokkos::View<float*, Space, Kokkos::MemoryTraits<Kokkos::Unmanaged>>(
                          static_cast<float*>(p.weight.data), static_cast<std::size_t>(p.weight.size())),
                      0);
  save_weights(Exec(), std::span<const Parameter>(model.parameters()), folder / "model.safetensors", *ledger);
  const Checkpoint checkpoint = Checkpoint::open(folder.path());
  std::size_t most = 0;
  const std::size_t before = resident_bytes_of_files();
  kformer::load_weights(Exec(), checkpoint, model.weights(), {}, *ledger, [&] {
    most = std::max(most, resident_bytes_of_files());
    return false;
  });
  BOOST_TEST(most <= before + (std::size_t(8) << 20));
  BOOST_TEST(resident_bytes_of_files() <= before + (std::size_t(8) << 20));
}

// Two rows of a Q8_0 matrix, each a scale of 1 and 32 codes.
BOOST_AUTO_TEST_CASE(blocks_on_their_way_to_a_dense_array_are_counted) {
  constexpr std::size_t row = 34;
  std::vector<std::byte> bytes(2 * row);
  for (std::size_t r = 0; r < 2; ++r) {
    bytes[r * row + 1] = std::byte{0x3c};
    for (std::size_t i = 0; i < 32; ++i) bytes[r * row + 2 + i] = static_cast<std::byte>(10 * r + i);
  }
  const auto ledger = Ledger::create(), other = Ledger::create();
  const auto staging = other->allocate<Space>(MemoryClass::io, "staging", bytes.size());
  const TestTensor<Exec, float> dense({2, 32}, Rows::packed);
  load_dense(Exec(), {QuantizedFormat::q8_0, {2, 32}, bytes}, dense.ref(), staging, *ledger);
  const auto values = dense.read<double>();
  for (std::size_t i = 0; i < 64; ++i)
    BOOST_TEST(values.values()[i] == static_cast<double>(10 * (i / 32) + i % 32));
  const auto counts = ledger->transfers();
  BOOST_TEST_REQUIRE(counts.size() == 1u);
  BOOST_TEST(counts[0].from == Kokkos::HostSpace::name());
  BOOST_TEST(counts[0].to == Space::name());
  BOOST_TEST(counts[0].transfers == 1u);
  BOOST_TEST(counts[0].bytes == bytes.size());
  BOOST_TEST(other->transfers().empty());
}

// As transformers and bitsandbytes saved it: matrices of layers in NF4, others in bfloat16.
BOOST_AUTO_TEST_CASE(a_checkpoint_of_bitsandbytes_is_kept_or_made_dense) {
  const std::filesystem::path folder = test_data("nf4_case/llama");
  const Checkpoint checkpoint = Checkpoint::open(folder);
  checkpoint.check_against(checkpoint.model());
  const auto formats = quantized_weights(checkpoint);
  BOOST_TEST(formats.size() == 7u);
  const auto ledger = Ledger::create();
  const LlamaConfig config = llama_config(checkpoint.model());
  LlamaDecoder<Exec, float> decoder(config, {.formats = formats}, *ledger);
  kformer::load_weights(Exec(), checkpoint, decoder, *ledger);
  for (const WeightSlot& slot : decoder.weights()) {
    BOOST_TEST(slot.is_quantized() == formats.contains(slot.name), slot.name);
    if (!slot.is_quantized()) continue;
    const auto& bytes = checkpoint.at(slot.name).bytes;
    std::vector<std::byte> loaded(bytes.size());
    Kokkos::deep_copy(Kokkos::View<std::byte*, Kokkos::HostSpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>>(
                          loaded.data(), loaded.size()),
                      Kokkos::View<std::byte*, Space, Kokkos::MemoryTraits<Kokkos::Unmanaged>>(
                          slot.quantized.data, loaded.size()));
    BOOST_TEST(std::equal(loaded.begin(), loaded.end(), bytes.begin()), slot.name);
  }
  const auto expected = SafetensorsFile::open(folder / "expected.safetensors");
  const auto staging = ledger->allocate<Space>(MemoryClass::io, "staging", staging_bytes(checkpoint, {}));
  for (const std::string& name : expected.names()) {
    const TestTensor<Exec, float> dense({16, 64}, Rows::packed);
    load_dense(Exec(), checkpoint.at(name), dense.ref(), staging, *ledger);
    BOOST_TEST(dense.read<double>().values() == expected.read_f64(name), name);
  }
}

// A model whose projections stay quantised while adapters learn.
BOOST_AUTO_TEST_CASE(dense_weights_are_quantised_on_the_way) {
  const Checkpoint checkpoint = open_checked();
  const LlamaConfig config = llama_config(checkpoint.model());
  const std::string q = "model.layers.0.self_attn.q_proj.weight", down = "model.layers.1.mlp.down_proj.weight";
  const WeightFormats formats{{q, QuantizedFormat::nf4}, {down, QuantizedFormat::q4_0}};
  const auto ledger = Ledger::create();
  LlamaModel<Exec, float> model(config, {1, 4}, {.lora = LoraConfig::all(2, 4), .formats = formats}, *ledger);
  kformer::load_weights(Exec(), checkpoint, model, *ledger);
  BOOST_TEST(staging_bytes(checkpoint, formats) == checkpoint.at(down).bytes.size());
  const auto file = SafetensorsFile::open(tiny_llama() / "model.safetensors");
  std::size_t quantised = 0;
  for (const WeightSlot& slot : model.weights()) {
    BOOST_TEST(slot.is_quantized() == formats.contains(slot.name), slot.name);
    if (!slot.is_quantized()) continue;
    ++quantised;
    const std::int64_t rows = slot.quantized.rows, columns = slot.quantized.cols;
    const std::vector<double> dense = file.read_f64(slot.name);
    TestTensor<Exec, double> numbers({rows, columns}), found({rows, columns}), expected({rows, columns});
    numbers.fill([&](std::size_t i) { return dense[i]; });
    const Kokkos::View<std::byte*, Space> blocks("blocks",
                                                 quantized_bytes(formats.at(slot.name), rows, columns));
    const QuantizedOutput matrix{formats.at(slot.name), blocks.data(), rows, columns};
    quantize(Exec(), numbers.view<2>(), matrix);
    dequantize(Exec(), matrix, expected.view<2>());
    dequantize(Exec(), slot.quantized, found.view<2>());
    Exec().fence("kformer::Testing::load");
    BOOST_TEST(found.read<double>().values() == expected.read<double>().values(), slot.name);
  }
  BOOST_TEST(quantised == 2u);
}

BOOST_AUTO_TEST_CASE(ranks_quantise_their_parts_of_a_decoder) {
  const Checkpoint checkpoint = open_checked();
  const auto file = SafetensorsFile::open(tiny_llama() / "model.safetensors");
  const std::string q = "model.layers.0.self_attn.q_proj.weight", down = "model.layers.1.mlp.down_proj.weight";
  const WeightFormats formats{{q, QuantizedFormat::q8_0},
                              {down, QuantizedFormat::q4_0},
                              {"model.embed_tokens.weight", QuantizedFormat::q8_0}};
  int quantised = 0;
  for (const int rank : {0, 1}) {
    const auto ledger = Ledger::create();
    LlamaDecoder<Exec, float> decoder(
        llama_config(checkpoint.model()),
        {.formats = formats, .tensor = std::make_shared<LoneCommunicator>(rank, 2)}, *ledger);
    kformer::load_weights(Exec(), checkpoint, decoder, *ledger);
    for (const WeightSlot& slot : decoder.weights()) {
      if (!slot.is_quantized()) continue;
      ++quantised;
      const std::vector<double> whole = file.read_f64(slot.name);
      const std::int64_t rows = slot.extent(0), columns = slot.extent(1), begin = slot.slice.begin;
      const bool by_columns = slot.slice.axis == 1;
      BOOST_TEST(by_columns == (slot.name == down));
      TestTensor<Exec, float> part({rows, columns});
      part.fill([&](std::size_t i) {
        const std::int64_t n = static_cast<std::int64_t>(i), row = n / columns, column = n % columns;
        return whole[static_cast<std::size_t>(by_columns ? row * slot.slice.whole + begin + column
                                                         : (begin + row) * columns + column)];
      });
      const Kokkos::View<std::byte*, Space> blocks("blocks",
                                                   quantized_bytes(formats.at(slot.name), rows, columns));
      quantize(Exec(), part.view<2>(), QuantizedOutput{formats.at(slot.name), blocks.data(), rows, columns});
      const Kokkos::View<std::byte*, Space, Kokkos::MemoryTraits<Kokkos::Unmanaged>> own(slot.quantized.data,
                                                                                         blocks.size());
      const auto found = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), own);
      const auto expected = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), blocks);
      BOOST_TEST(std::equal(found.data(), found.data() + found.size(), expected.data()), slot.name);
    }
  }
  BOOST_TEST(quantised == 6);
}

BOOST_AUTO_TEST_CASE(blocks_of_another_format_are_refused) {
  const Checkpoint checkpoint = Checkpoint::open(test_data("nf4_case/llama"));
  const auto ledger = Ledger::create();
  LlamaModel<Exec, float> model(llama_config(checkpoint.model()), {1, 4},
                                {.lora = LoraConfig::all(2, 4),
                                 .formats = {{"model.layers.0.mlp.up_proj.weight", QuantizedFormat::q8_0}}},
                                *ledger);
  check_error<FileError>([&] { kformer::load_weights(Exec(), checkpoint, model, *ledger); },
                         "kformer::load_weights: model.layers.0.mlp.up_proj.weight is quantised to NF4 in the "
                         "checkpoint, and to Q8_0 in the model; keep its format, or make it of dense weights");
}

// The host reads and writes what it reaches.
BOOST_AUTO_TEST_CASE(numbers_are_transferred_only_where_the_host_does_not_reach) {
  const ScratchDirectory folder;
  const Checkpoint checkpoint = open_checked();
  const auto ledger = Ledger::create(), loading = Ledger::create(), saving = Ledger::create();
  LlamaModel<Exec, bf16> model(llama_config(checkpoint.model()), {1, 4}, {}, *ledger);
  kformer::load_weights(Exec(), checkpoint, model, *loading);
  save_weights(Exec(), std::span<const Parameter>(model.parameters()), folder / "model.safetensors", *saving);
  constexpr bool reached = Kokkos::SpaceAccessibility<Kokkos::HostSpace, Space>::accessible;
  std::size_t bytes = 0;
  for (const Parameter& p : model.parameters())
    bytes += static_cast<std::size_t>(p.weight.size()) * sizeof(bf16);
  for (const auto& counted : {loading, saving})
    BOOST_TEST((counted->transfers().empty() ? 0 : counted->transfers()[0].bytes) == (reached ? 0 : bytes));
}

BOOST_AUTO_TEST_CASE(a_view_of_a_weight_is_the_weight) {
  const Checkpoint checkpoint = open_checked();
  const auto ledger = Ledger::create();
  LlamaModel<Exec, float> model(llama_config(checkpoint.model()), {1, 4}, {}, *ledger);
  const Parameter parameter = model.parameters().at(0);
  const auto view = view_of<float**, Space>(parameter.weight);
  BOOST_TEST(static_cast<void*>(view.data()) == parameter.weight.data);
  BOOST_TEST(static_cast<std::int64_t>(view.extent(0)) == parameter.weight.extent[0]);
  BOOST_TEST(static_cast<std::int64_t>(view.stride(0)) == parameter.weight.stride[0]);
  check_error<DimensionMismatch>(
      [&] { view_of<double**, Space>(parameter.weight); },
      "kformer::view_of: the tensor has rank 2 and storage type f32, but the View has rank 2 and f64");
  check_error<DimensionMismatch>(
      [&] { view_of<float*, Space>(parameter.weight); },
      "kformer::view_of: the tensor has rank 2 and storage type f32, but the View has rank 1 and f32");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kformer::Testing
