// SPDX-License-Identifier: MIT
// Weights that bitsandbytes wrote in 4 bits. tests/ops/nf4_case.cpp has what they are worth.
#include <boost/test/unit_test.hpp>

#include <cstring>

#include "error_text.hpp"
#include "kformer/io/checkpoint.hpp"
#include "kformer/io/safetensors.hpp"
#include "scratch_directory.hpp"

namespace {

using namespace kformer;
using namespace kformer::Testing;

const std::string llama = KFORMER_SOURCE_DIR "/tests/data/nf4_case/llama";
const std::string k = "model.layers.0.self_attn.k_proj.weight";  // (16, 64)

struct Entry {
  std::string type;
  std::vector<std::size_t> shape;
  std::string bytes;
};

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

struct Fixture {
  ScratchDirectory directory;
  std::map<std::string, Entry> tensors = [] {
    std::map<std::string, Entry> all;
    const auto file = SafetensorsFile::open(llama + "/model.safetensors");
    for (const std::string& name : file.names()) {
      const TensorEntry& entry = file.at(name);
      all[name] = {entry.dtype, entry.shape, text_of(entry.bytes)};
    }
    return all;
  }();

  void write(const std::string& file, const std::map<std::string, Entry>& some) const {
    SafetensorsWriter writer;
    for (const auto& [name, entry] : some) writer.add(name, entry.type, entry.shape, entry.bytes.data());
    writer.write(directory / file);
    put_contents(directory / "config.json", contents_of(llama + "/config.json"));
  }
  Checkpoint checkpoint() const {
    write("model.safetensors", tensors);
    return Checkpoint::open(directory.path());
  }
  /// The fault of a tensor of `k` with other contents, without the place.
  std::string refusal(const std::string& suffix, Entry entry) {
    auto changed = tensors;
    changed[k + suffix] = std::move(entry);
    write("model.safetensors", changed);
    return after_place(file_error([&] { Checkpoint::open(directory.path()); }));
  }
  std::string after_place(const std::string& fault) const {
    const std::string start = "'" + directory.path().string() + "': tensor '" + k;
    return fault.starts_with(start) ? fault.substr(start.size()) : fault;
  }
  /// The fault where a text of the state is another one.
  std::string state_refusal(const std::string& old, const std::string& text) {
    Entry state = tensors.at(k + ".quant_state.bitsandbytes__nf4");
    const std::size_t at = state.bytes.find(old);
    BOOST_REQUIRE(at != state.bytes.npos);
    state.bytes.replace(at, old.size(), text);
    state.shape = {state.bytes.size()};
    return refusal(".quant_state.bitsandbytes__nf4", state);
  }
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(checkpoint_bitsandbytes, Fixture)

BOOST_AUTO_TEST_CASE(a_group_of_tensors_is_one_in_nf4) {
  const Checkpoint read = Checkpoint::open(llama);
  read.check_against(read.model());
  BOOST_TEST((read.format() == CheckpointFormat::packed));
  BOOST_TEST(read.names().size() == 11u);
  const CheckpointTensor& tensor = read.at(k);
  BOOST_TEST(to_string(tensor.type) == "NF4");
  BOOST_TEST(tensor.shape == (std::vector<std::size_t>{16, 64}));
  BOOST_REQUIRE(tensor.bytes.size() == 16u * 33u + 8u);
  const std::string bytes = text_of(tensor.bytes);
  const auto part = [&](const char* suffix) { return tensors.at(k + suffix).bytes; };
  for (std::size_t block = 0; block < 16; ++block) {
    BOOST_TEST((bytes[33 * block] == part(".absmax")[block]));
    BOOST_TEST((bytes.substr(33 * block + 1, 32) == part("").substr(32 * block, 32)));
  }
  BOOST_TEST((bytes.substr(16 * 33 + 4) == part(".nested_absmax")));
  float offset = 0;
  std::memcpy(&offset, bytes.data() + 16 * 33, sizeof(offset));
  const std::string state = part(".quant_state.bitsandbytes__nf4"), key = "\"nested_offset\": ";
  BOOST_TEST(offset == std::stof(state.substr(state.find(key) + key.size())));
  BOOST_TEST((text_of(read.at(k).bytes) == bytes));
}

BOOST_AUTO_TEST_CASE(parts_may_be_in_several_shards) {
  std::map<std::string, Entry> first, second;
  std::string map;
  for (const auto& [name, entry] : tensors) {
    const bool behind = name.size() % 2 != 0;
    (behind ? second : first)[name] = entry;
    map += (map.empty() ? "" : ",") + ("\"" + name + "\":\"" + (behind ? "b" : "a") + ".safetensors\"");
  }
  write("a.safetensors", first);
  write("b.safetensors", second);
  put_contents(directory / "model.safetensors.index.json", "{\"weight_map\":{" + map + "}}");
  const Checkpoint sharded = Checkpoint::open(directory.path()), whole = Checkpoint::open(llama);
  BOOST_TEST(sharded.names() == whole.names());
  BOOST_TEST((text_of(sharded.at(k).bytes) == text_of(whole.at(k).bytes)));
}

BOOST_AUTO_TEST_CASE(what_is_read_can_be_packed) {
  const Checkpoint source = checkpoint();
  PackedCheckpointWriter writer(source);
  for (const std::string& name : source.names()) writer.add(name, source.at(name));
  writer.write(directory / "packed");
  const Checkpoint packed = Checkpoint::open(directory / "packed");
  BOOST_TEST(packed.names() == source.names());
  BOOST_TEST((text_of(packed.at(k).bytes) == text_of(source.at(k).bytes)));
}

BOOST_AUTO_TEST_CASE(other_quantisations_are_refused) {
  BOOST_TEST(state_refusal("\"nf4\"", "\"fp4\"") ==
             ".quant_state.bitsandbytes__nf4' must have 'quant_type': \"nf4\"");
  BOOST_TEST(state_refusal("\"blocksize\": 64", "\"blocksize\": 128") ==
             ".quant_state.bitsandbytes__nf4' must have 'blocksize': 64");
  BOOST_TEST(state_refusal("\"nested_blocksize\": 256", "\"nested_blocksize\": 255") ==
             ".quant_state.bitsandbytes__nf4' must have 'nested_blocksize': 256");
  BOOST_TEST(state_refusal("\"float32\"", "\"float16\"") ==
             ".quant_state.bitsandbytes__nf4' must have 'nested_dtype': \"float32\"");
  BOOST_TEST(
      state_refusal("nested_offset", "nested_offsets") ==
      "' has scales in float; only those of double quantisation are supported (bnb_4bit_use_double_quant)");
  Entry map = tensors.at(k + ".nested_quant_map");
  map.bytes[4 * 200] = static_cast<char>(map.bytes[4 * 200] ^ 1);
  BOOST_TEST(refusal(".nested_quant_map", map)
                 .starts_with(".nested_quant_map' is not the signed dynamic map of 8 bits: number 200 is "));
  map = tensors.at(k + ".quant_map");
  map.bytes[4 * 15 + 3] = static_cast<char>(map.bytes[4 * 15 + 3] ^ 1);
  BOOST_TEST(refusal(".quant_map", map).starts_with(".quant_map' is not the 16 values of NF4: number 15 is "));
  tensors[k + ".quant_state.bitsandbytes__fp4"] = {"U8", {2}, "{}"};
  BOOST_TEST(after_place(file_error([&] { checkpoint(); })) ==
             ".quant_state.bitsandbytes__fp4': of the 4-bit types of bitsandbytes only nf4 is supported");
}

BOOST_AUTO_TEST_CASE(hostile_groups_are_refused) {
  const std::string shape = "\"shape\": [16, 64]";
  BOOST_TEST(state_refusal(shape, "\"shape\": [16, 63]") ==
             "' has rows of 63 weights, which are no whole number of blocks of 64");
  BOOST_TEST(state_refusal(shape, "\"shape\": [32, 64]") == "' has 512 bytes, expected 1024");
  BOOST_TEST(state_refusal(shape, "\"shape\": [2147483648, 2147483648]") ==
             "' has 512 bytes, expected 2305843009213693952");
  for (const char* other : {"[16]", "[-16, 64]", "[16, 64, 1]", "[16.0, 64]", "[2147483649, 64]", "7", "null"})
    BOOST_TEST(state_refusal(shape, std::string("\"shape\": ") + other) ==
               ".quant_state.bitsandbytes__nf4' must have two extents as 'shape'");
  const std::string is = ".quant_state.bitsandbytes__nf4' ";
  BOOST_TEST(refusal(".quant_state.bitsandbytes__nf4", {"U8", {1}, "7"}) == is + "is not a JSON object");
  BOOST_TEST(refusal(".quant_state.bitsandbytes__nf4", {"U8", {1}, "{"}) == is + "is not JSON");
  BOOST_TEST(refusal(".quant_state.bitsandbytes__nf4", {"U8", {9}, "[[[[[[[[["}) ==
             is + "is nested too deeply");
  BOOST_TEST(refusal(".quant_state.bitsandbytes__nf4", {"U8", {5000}, std::string(5000, ' ')}) ==
             is + "must be a text of at most 4096 bytes, as U8");
  Entry absmax = tensors.at(k + ".absmax");
  absmax.shape = {4};
  absmax.type = "F32";
  BOOST_TEST(refusal(".absmax", absmax) == ".absmax' is of type F32, expected U8");
  BOOST_TEST(refusal(".nested_absmax", {"F32", {2}, std::string(8, 'x')}) ==
             ".nested_absmax' has 8 bytes, expected 4");
  for (const char* suffix : {"", ".absmax", ".nested_absmax", ".nested_quant_map", ".quant_map"}) {
    auto some = tensors;
    some.erase(k + suffix);
    write("model.safetensors", some);
    BOOST_TEST(after_place(file_error([&] { Checkpoint::open(directory.path()); })) ==
               std::string(suffix) + "' is missing beside its quant_state");
  }
  BOOST_TEST(state_refusal("\"nested_offset\": ", "\"nested_offset\": 1e39, \"x\": ") ==
             is + "must have a float as 'nested_offset'");
  BOOST_TEST(state_refusal("\"nested_offset\": ", "\"nested_offset\": \"1\", \"x\": ") ==
             is + "must have a number as 'nested_offset'");
}

// Without its state, a weight is bytes, which no model reads.
BOOST_AUTO_TEST_CASE(bytes_without_a_state_are_no_weights) {
  tensors.erase(k + ".quant_state.bitsandbytes__nf4");
  const Checkpoint read = checkpoint();
  const std::string fault = file_error([&] { read.check_against(read.model()); });
  BOOST_TEST(fault.find(k + " has shape [512,1], expected [16,64]") != fault.npos);
}

BOOST_AUTO_TEST_SUITE_END()
