// SPDX-License-Identifier: MIT
#include <algorithm>
#include <array>
#include <boost/test/unit_test.hpp>
#include <cstring>

#include "kformer/io/safetensors.hpp"
#include "random_bytes.hpp"
#include "safetensors_bytes.hpp"

namespace {

using namespace kformer::Testing;

/// Pieces of JSON and numbers at the edges of what 64 bits can do.
const std::vector<std::string> tokens =
    json_pieces({"1", "1e3", "1.5", "4294967296", "9223372036854775807", "9223372036854775808",
                 "18446744073709551615", "18446744073709551616", "\"dtype\"", "\"shape\"", "\"data_offsets\"",
                 "\"__metadata__\"", "\"F32\"", "\"F4\"", "\"BF16\"", "\\uD800", "\xC3", "[0,0]",
                 "{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}"});

const std::array<std::string, 3> valid_headers{
    R"({"__metadata__":{"hidden_size":"64"},"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},)"
    R"("b":{"dtype":"BF16","shape":[4],"data_offsets":[16,24]},"c":{"dtype":"F64","shape":[],"data_offsets":[24,32]}})",
    R"({"x":{"data_offsets":[0,32],"shape":[32],"dtype":"U8"},"y":{"dtype":"F16","shape":[0,9],"data_offsets":[32,32]}}  )",
    R"({"one":{"dtype":"F16","shape":[1,16],"data_offsets":[0,32]}})"};

std::string mutated_header(Random& random, std::string header) {
  if (below(random, 6) > 0) return mutated(random, std::move(header), tokens);
  // A number becomes another: what comes closest to a valid file with wrong sizes.
  const auto digit = header.find_first_of("0123456789", below(random, header.size()));
  if (digit == std::string::npos) return header;
  const auto end = std::min(header.find_first_not_of("0123456789", digit), header.size());
  return header.replace(digit, end - digit,
                        std::to_string(below(random, 2) == 0 ? below(random, 40) : random()));
}

std::string mutated_file(Random& random) {
  std::string header = one_of(random, valid_headers);
  const std::size_t mutations = 1 + below(random, 4);
  for (std::size_t i = 0; i < mutations && !header.empty(); ++i) header = mutated_header(random, header);
  std::string bytes = safetensors_bytes(header, std::string(32, '\x41'));
  if (below(random, 8) == 0) bytes[below(random, 8)] = static_cast<char>(below(random, 256));
  if (below(random, 8) == 0) bytes.resize(below(random, bytes.size() + 8));
  return bytes;
}

std::size_t size_of_data(const std::string& bytes) {
  std::uint64_t header = 0;
  std::memcpy(&header, bytes.data(), sizeof(header));
  return bytes.size() - sizeof(header) - header;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(safetensors_fuzz)

BOOST_AUTO_TEST_CASE(unmutated_files_are_read) {
  for (const auto& header : valid_headers) {
    const std::string bytes = safetensors_bytes(header, std::string(32, '\x41'));
    const auto file = kformer::SafetensorsFile::parse(std::as_bytes(std::span(bytes)), "valid");
    BOOST_TEST(read_everything(file) == 32);
  }
}

BOOST_AUTO_TEST_CASE(mutated_files_are_read_or_refused) {
  constexpr int rounds = 50'000;
  read_mutations(rounds, rounds / 1000, rounds / 2, [](Random& random) {
    const std::string bytes = mutated_file(random);
    const auto file = kformer::SafetensorsFile::parse(std::as_bytes(std::span(bytes)), "mutated");
    BOOST_REQUIRE(read_everything(file) == size_of_data(bytes));
  });
}

BOOST_AUTO_TEST_SUITE_END()
