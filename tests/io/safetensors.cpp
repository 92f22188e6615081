// SPDX-License-Identifier: MIT
#include "kformer/io/safetensors.hpp"

#include <sys/stat.h>

#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstring>
#include <limits>

#include "error_text.hpp"
#include "safetensors_bytes.hpp"
#include "scratch_directory.hpp"

namespace {

using namespace kformer;
using namespace kformer::Testing;

SafetensorsFile parse(const std::string& bytes) {
  return SafetensorsFile::parse(std::as_bytes(std::span(bytes)), "x.safetensors");
}

/// The reason why a file with this header and so many bytes of data is refused, without the part that is always
/// the same.
std::string refusal(const std::string& header, std::size_t data_size) {
  const std::string bytes = safetensors_bytes(header, std::string(data_size, '\0'));
  const std::string text = error_text([&] { parse(bytes); });
  const std::string start = "'x.safetensors' is not a valid safetensors file: ";
  return text.starts_with(start) ? text.substr(start.size()) : text;
}

std::string tensor(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
}

std::string as_text(const std::vector<std::uint16_t>& items) {
  std::string text(items.size() * 2, '\0');
  std::memcpy(text.data(), items.data(), text.size());
  return text;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(safetensors)

BOOST_AUTO_TEST_CASE(what_is_written_is_read_back) {
  const ScratchDirectory scratch;
  const std::vector<float> weight{1.5F, -2.0F, 0.1F, std::numeric_limits<float>::infinity(), 0.0F, 3e-45F};
  const std::vector<double> exact{0.1, -1e300};
  const float scalar = 7;
  const std::int64_t index = -3;
  SafetensorsWriter writer;
  writer.metadata("rope_theta", "10000.0");
  writer.metadata("quote", "\"\\ \n ü");
  writer.add("weight", "F32", {2, 3}, weight.data());
  writer.add("exact", "F64", {2}, exact.data());
  writer.add("scalar", "F32", {}, &scalar);
  writer.add("empty", "F32", {4, 0, 2}, nullptr);
  writer.add("index", "I64", {1}, &index);
  writer.write(scratch / "a.safetensors");

  const auto file = SafetensorsFile::open(scratch / "a.safetensors");
  BOOST_TEST(file.names() == (std::vector<std::string>{"empty", "exact", "index", "scalar", "weight"}),
             boost::test_tools::per_element());
  BOOST_TEST(file.metadata().at("rope_theta") == "10000.0");
  BOOST_TEST(file.metadata().at("quote") == "\"\\ \n ü");
  BOOST_TEST(file.at("weight").shape == (std::vector<std::size_t>{2, 3}), boost::test_tools::per_element());
  BOOST_TEST(file.at("weight").size() == 6);
  BOOST_TEST(file.at("weight").dtype == "F32");
  BOOST_TEST(file.read_f64("weight") == std::vector<double>(weight.begin(), weight.end()),
             boost::test_tools::per_element());
  BOOST_TEST(file.read_f64("exact") == exact, boost::test_tools::per_element());
  BOOST_TEST(file.read_f64("scalar") == std::vector<double>{7}, boost::test_tools::per_element());
  BOOST_TEST(file.at("scalar").shape.empty());
  BOOST_TEST(file.read_f64("empty").empty());
  BOOST_TEST((file.find("missing") == nullptr));
  BOOST_TEST((std::memcmp(file.at("index").bytes.data(), &index, sizeof(index)) == 0));
}

// As if they were larger than memory: each is there while it is written.
BOOST_AUTO_TEST_CASE(tensors_may_be_made_one_after_the_other) {
  const ScratchDirectory scratch;
  const std::vector<float> a{1, 2}, b{3, 4};
  SafetensorsWriter whole, parts;
  whole.add("a", "F32", {2}, a.data());
  whole.add("b", "F32", {2}, b.data());
  std::vector<float> room(2);
  std::string order;
  parts.add("b", "F32", {2}, [&] {
    order += "b";
    return room = b, room.data();
  });
  parts.add("a", "F32", {2}, [&] {
    order += "a";
    return room = a, room.data();
  });
  BOOST_TEST(order.empty());
  whole.write(scratch / "whole");
  parts.write(scratch / "parts");
  BOOST_TEST(order == "ab");
  BOOST_TEST(contents_of(scratch / "parts") == contents_of(scratch / "whole"));
}

BOOST_AUTO_TEST_CASE(a_tensor_that_cannot_be_made_leaves_what_was_there) {
  const ScratchDirectory scratch;
  put_contents(scratch / "file", "old");
  SafetensorsWriter writer;
  writer.add("a", "F32", {2}, []() -> const void* { throw Error("no elements"); });
  BOOST_TEST(error_text([&] { writer.write(scratch / "file"); }) == "no elements");
  BOOST_TEST(contents_of(scratch / "file") == "old");
  BOOST_TEST(std::distance(std::filesystem::directory_iterator(scratch.path()), {}) == 1);
}

BOOST_AUTO_TEST_CASE(the_written_bytes_do_not_depend_on_the_order_and_are_aligned) {
  const ScratchDirectory scratch;
  const std::vector<float> single(3);
  const std::vector<double> twice(2);
  SafetensorsWriter one;
  one.add("b", "F32", {3}, single.data());
  one.add("a", "F32", {1}, single.data());
  one.add("z", "F64", {2}, twice.data());
  one.write(scratch / "one");
  SafetensorsWriter other;
  other.add("z", "F64", {2}, twice.data());
  other.add("a", "F32", {1}, single.data());
  other.add("b", "F32", {3}, single.data());
  other.write(scratch / "other");
  BOOST_TEST(contents_of(scratch / "one") == contents_of(scratch / "other"));
  const auto file = SafetensorsFile::open(scratch / "one");
  BOOST_TEST(reinterpret_cast<std::uintptr_t>(file.at("z").bytes.data()) % 8 == 0);
  BOOST_TEST(file.at("z").bytes.data() < file.at("a").bytes.data());
  BOOST_TEST(file.at("a").bytes.data() < file.at("b").bytes.data());
}

BOOST_AUTO_TEST_CASE(sixteen_bit_types_are_converted_exactly) {
  const std::string header =
      R"({"h":)" + tensor("F16", "[8]", "[0,16]") + R"(,"b":)" + tensor("BF16", "[4]", "[16,24]") + "}";
  const std::string bytes =
      safetensors_bytes(header, as_text({0x3C00, 0xC000, 0x0001, 0x03FF, 0x0400, 0x7BFF, 0xFC00, 0x7E01}) +
                                    as_text({0x3F80, 0xC049, 0x0001, 0x7F80}));
  const auto file = parse(bytes);
  const auto h = file.read_f64("h");
  const std::vector<double> expected{1, -2, 0x1p-24, 1023 * 0x1p-24, 0x1p-14, 65504};
  BOOST_TEST(std::vector<double>(h.begin(), h.begin() + 6) == expected, boost::test_tools::per_element());
  BOOST_TEST(h[6] == -std::numeric_limits<double>::infinity());
  BOOST_TEST(std::isnan(h[7]));
  BOOST_TEST(file.read_f64("b") ==
                 (std::vector<double>{1, -3.140625, 0x1p-133, std::numeric_limits<double>::infinity()}),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(unaligned_data_and_padding_are_legal) {
  const std::string header =
      R"({"a":)" + tensor("U8", "[1]", "[0,1]") + R"(,"b":)" + tensor("F64", "[1]", "[1,9]") + "}  ";
  const double value = 0.1;
  std::string data(9, '\0');
  std::memcpy(data.data() + 1, &value, sizeof(value));
  const std::string bytes = safetensors_bytes(header, data);
  BOOST_TEST(parse(bytes).read_f64("b").at(0) == value);
  BOOST_TEST(parse(safetensors_bytes("{}", "")).names().empty());
  const std::string narrow = safetensors_bytes(R"({"a":)" + tensor("F4", "[3,2]", "[0,3]") + "}", "abc");
  BOOST_TEST(parse(narrow).at("a").bytes.size() == 3);
}

BOOST_AUTO_TEST_CASE(every_broken_rule_is_named) {
  const std::string good = tensor("F32", "[2]", "[0,8]");
  BOOST_TEST(refusal(R"({"a":)" + good + "}", 8) == "no error");
  BOOST_TEST(refusal(R"({"a":)" + good + "}", 9) == "its tensors take 8 bytes, but 9 are there");
  BOOST_TEST(refusal(R"({"a":)" + good + "}", 7) ==
             "its tensors take 8 bytes, but 7 are there; is the file truncated?");
  BOOST_TEST(refusal("", 0) == "its header does not start with '{'");
  BOOST_TEST(refusal(" {}", 0) == "its header does not start with '{'");
  BOOST_TEST(refusal("[]", 0) == "its header does not start with '{'");
  BOOST_TEST(refusal("{} x", 0).starts_with("header: not valid JSON at byte 4: "));
  BOOST_TEST(refusal("{\"\xFF\":1}", 0).starts_with("header: not valid JSON at byte "));
  BOOST_TEST(refusal(R"({"a":)" + good + R"(,"a":)" + good + "}", 8) == "header: the key 'a' occurs twice");
  BOOST_TEST(refusal(R"({"__metadata__":{},"__metadata__":{}})", 0) ==
             "header: the key '__metadata__' occurs twice");
  BOOST_TEST(refusal(R"({"__metadata__":{"k":"1","k":"2"}})", 0) ==
             "header: the key 'k' of the metadata occurs twice");
  BOOST_TEST(refusal(R"({"__metadata__":{"k":1}})", 0) ==
             "header: 'k' of the metadata is a number, expected a text");
  BOOST_TEST(refusal(R"({"__metadata__":"k"})", 0) == "header: '__metadata__' is a string, expected an object");
  BOOST_TEST(refusal(R"({"a":3})", 0) == "header: 'a' is a number, expected an object");
  BOOST_TEST(refusal(R"({"a":null})", 0) == "header: 'a' is null, expected an object");
  BOOST_TEST(refusal(R"({"a":{"dtype":"F32","dtype":"F64"}})", 0) ==
             "header: the key 'dtype' of tensor 'a' occurs twice");
  BOOST_TEST(refusal(R"({"a":{"dtype":"F32","shape":[]}})", 0) == "header: tensor 'a' has no data_offsets");
  BOOST_TEST(refusal(R"({"a":{"type":"F32"}})", 0) ==
             "header: tensor 'a' has the unknown key 'type'; known: dtype, shape, data_offsets");
  BOOST_TEST(refusal(R"({"a":{"dtype":["F32"]}})", 0) ==
             "header: dtype of tensor 'a' is an array, expected a text");
  BOOST_TEST(refusal(R"({"a":)" + tensor("F32", "[true]", "[0,4]") + "}", 4) ==
             "header: shape of tensor 'a' is a bool, expected a non-negative integer");
  BOOST_TEST(refusal(R"({"a":)" + tensor("F32", "[-1]", "[0,4]") + "}", 4) ==
             "header: shape of tensor 'a' is negative, expected a non-negative integer");
  BOOST_TEST(refusal(R"({"a":)" + tensor("F32", "[18446744073709551616]", "[0,4]") + "}", 4) ==
             "header: shape of tensor 'a' is not a 64-bit integer, expected a non-negative integer");
  BOOST_TEST(refusal(R"({"a":)" + tensor("F32", "[[1]]", "[0,4]") + "}", 4) ==
             "header: shape of tensor 'a' is an array, expected a non-negative integer");
  BOOST_TEST(refusal(R"({"a":)" + tensor("F32", "3", "[0,4]") + "}", 4) ==
             "header: shape of tensor 'a' is a number, expected an array of non-negative integers");
  BOOST_TEST(refusal(R"({"a":)" + tensor("F32", "[1]", "[0,4,4]") + "}", 4) ==
             "header: data_offsets of tensor 'a' must be two numbers");
  BOOST_TEST(refusal(R"({"a":)" + tensor("F33", "[1]", "[0,4]") + "}", 4) ==
             "tensor 'a' has the unknown type 'F33'");
  BOOST_TEST(refusal(R"({"a":)" + tensor("F32", "[2]", "[0,4]") + "}", 4) ==
             "tensor 'a' of type F32 and shape [2] needs 8 bytes, but its data_offsets are [0,4]");
  BOOST_TEST(refusal(R"({"a":)" + tensor("F32", "[0]", "[4,0]") + "}", 4) ==
             "tensor 'a' of type F32 and shape [0] needs 0 bytes, but its data_offsets are [4,0]");
  BOOST_TEST(refusal(R"({"a":)" + tensor("U8", "[4294967296,4294967296]", "[0,0]") + "}", 0) ==
             "tensor 'a' of type U8 and shape [4294967296,4294967296] is too large to address");
  BOOST_TEST(refusal(R"({"a":)" + tensor("F4", "[3]", "[0,1]") + "}", 1) ==
             "tensor 'a' of type F4 and shape [3] is too large to address");
  BOOST_TEST(refusal(R"({"a":)" + good + R"(,"b":)" + tensor("U8", "[1]", "[9,10]") + "}", 10) ==
             "the data of tensor 'b' begin at byte 9, expected 8, where the previous tensor ends");
  BOOST_TEST(refusal(R"({"a":)" + good + R"(,"b":)" + tensor("U8", "[1]", "[7,8]") + "}", 8) ==
             "the data of tensor 'b' begin at byte 7, expected 8, where the previous tensor ends");
  BOOST_TEST(refusal(R"({"a":)" + tensor("U8", "[1]", "[1,2]") + "}", 2) ==
             "the data of tensor 'a' begin at byte 1, expected 0, where the previous tensor ends");

  const std::string start = "'x.safetensors' is not a valid safetensors file: ";
  BOOST_TEST(error_text([] { parse("1234567"); }) == start + "it has 7 bytes, fewer than 8");
  BOOST_TEST(error_text([] { parse(std::string("\x09\0\0\0\0\0\0\0{}", 10)); }) ==
             start + "its header claims 9 bytes, but only 2 follow; is the file truncated?");
  BOOST_TEST(error_text([] { parse(std::string(8, '\xFF') + "{}"); }) ==
             start + "its header claims 18446744073709551615 bytes, more than the format's 100000000");
}

BOOST_AUTO_TEST_CASE(a_wish_that_the_file_cannot_fulfil_names_file_and_tensor) {
  const ScratchDirectory scratch;
  const auto path = scratch / "a.safetensors";
  const std::string quoted = "'" + path.string() + "'";
  BOOST_TEST(error_text([&] { SafetensorsFile::open(path); }) ==
             "cannot read " + quoted + ": No such file or directory");
  BOOST_TEST(error_text([&] { SafetensorsFile::open(scratch.path()); }) ==
             "cannot read '" + scratch.path().string() + "': Is a directory");
  put_contents(path, "");
  BOOST_TEST(error_text([&] { SafetensorsFile::open(path); }) ==
             quoted + " is not a valid safetensors file: it has 0 bytes, fewer than 8");
  const std::int32_t index = 1;
  SafetensorsWriter writer;
  writer.add("hidden_states", "I32", {1}, &index);
  writer.write(path);
  const auto file = SafetensorsFile::open(path);
  BOOST_TEST(error_text([&] { file.read_f64("hiden_state"); }) ==
             quoted + " has no tensor 'hiden_state'; did you mean 'hidden_states'?");
  BOOST_TEST(error_text([&] { file.at("lm_head"); }) ==
             quoted + " has no tensor 'lm_head'; known: hidden_states");
  BOOST_TEST(error_text([&] { file.read_f64("hidden_states"); }) ==
             quoted + ": tensor 'hidden_states' is of type I32, expected F64, F32, F16 or BF16");
}

BOOST_AUTO_TEST_CASE(pipes_and_devices_are_refused_at_once) {
  const ScratchDirectory scratch;
  BOOST_REQUIRE(::mkfifo((scratch / "config.json").c_str(), 0600) == 0);
  for (const std::string& path : {(scratch / "config.json").string(), std::string("/dev/zero")}) {
    const std::string expected = "cannot read '" + path + "': it is a pipe, a device or a socket, not a file";
    BOOST_TEST(error_text([&] { SafetensorsFile::open(path); }) == expected);
  }
}

BOOST_AUTO_TEST_CASE(the_writer_refuses_what_could_not_be_read) {
  const float value = 0;
  SafetensorsWriter writer;
  writer.add("a", "F32", {1}, &value);
  const auto refused = [&](const std::string& name, const std::string& dtype,
                           const std::vector<std::size_t>& shape) {
    return error_text([&] { writer.add(name, dtype, shape, &value); });
  };
  const std::string start = "kformer::SafetensorsWriter::add: tensor ";
  BOOST_TEST(refused("a", "F32", {1}) == start + "'a' is added twice");
  BOOST_TEST(refused("b", "f32", {1}) == start + "'b' has the unknown type 'f32', expected F64, F32, F16, ...");
  BOOST_TEST(refused("__metadata__", "F32", {1}) ==
             start + "'__metadata__' has the name reserved for the metadata");
  BOOST_TEST(refused("b", "F32", {std::size_t{1} << 62}) == start + "'b' is too large to address");

  const ScratchDirectory scratch;
  const auto path = scratch / "a.safetensors";
  writer.write(path);
  const std::string before = contents_of(path);
  // A link that somebody planted is not followed.
  std::filesystem::create_symlink("/dev/full", path.string() + ".tmp");
  writer.write(path);
  BOOST_TEST(contents_of(path) == before);
  writer.metadata("k", "\xFF");
  BOOST_TEST(error_text([&] {
               writer.write(path);
             }).starts_with("cannot write '" + path.string() + "': a name or a metadata text is not UTF-8: "));
  BOOST_TEST(contents_of(path) == before);
  BOOST_TEST(error_text([&] { writer.metadata("k", ""), writer.write(scratch / "no/b"); }) ==
             "cannot write '" + (scratch / "no/b").string() + "': No such file or directory");
}

BOOST_AUTO_TEST_SUITE_END()
