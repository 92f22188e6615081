// SPDX-License-Identifier: MIT
#include "io/safetensors/header.hpp"

#include <nlohmann/json.hpp>
#include <utility>

#include "io/safetensors/layout.hpp"
#include "kformer/core/error.hpp"

namespace kformer::Impl {
namespace {

/// Receives the events of the JSON parser. A tree would be simpler to read, but a tree keeps only the last of
/// two equal keys, and so lets two programs see different tensors in the same file.
class HeaderHandler : public nlohmann::json_sax<nlohmann::json> {
 public:
  HeaderHandler(Header& header, const std::string& source) : m_header(header), m_source(source) {}

  bool start_object(std::size_t) override {
    if (m_place == Place::outside) {
      m_place = Place::top;
    } else if (m_place == Place::top) {
      m_place = m_name == metadata_key ? Place::metadata : Place::tensor;
    } else {
      refuse(here() + " is an object, expected " + expected());
    }
    return true;
  }

  bool key(string_t& key) override {
    if (m_place == Place::top) {
      const bool fresh =
          key == metadata_key ? !std::exchange(m_has_metadata, true) : m_header.tensors.try_emplace(key).second;
      if (!fresh) refuse("the key '" + key + "' occurs twice");
      m_name = key;
    } else if (m_place == Place::metadata) {
      if (!m_header.metadata.try_emplace(key).second)
        refuse("the key '" + key + "' of the metadata occurs twice");
    } else {
      note_field(key);
    }
    m_key = key;
    return true;
  }

  bool end_object() override {
    if (m_place == Place::tensor) {
      for (const auto& [name, seen] : m_fields) {
        if (!seen) refuse("tensor '" + m_name + "' has no " + std::string(name));
      }
      if (entry().offsets.size() != 2) refuse("data_offsets of tensor '" + m_name + "' must be two numbers");
      for (auto& [name, seen] : m_fields) seen = false;
    }
    m_place = m_place == Place::top ? Place::outside : Place::top;
    return true;
  }

  bool start_array(std::size_t) override {
    if (m_place != Place::tensor || m_key == "dtype") refuse(here() + " is an array, expected " + expected());
    m_place = m_key == "shape" ? Place::shape : Place::offsets;
    return true;
  }

  bool end_array() override {
    m_place = Place::tensor;
    return true;
  }

  bool string(string_t& value) override {
    if (m_place == Place::metadata) {
      m_header.metadata[m_key] = value;
    } else if (m_place == Place::tensor && m_key == "dtype") {
      entry().dtype = value;
    } else {
      refuse(here() + " is a string, expected " + expected());
    }
    return true;
  }

  bool number_unsigned(number_unsigned_t value) override {
    if (m_place == Place::shape) {
      entry().shape.push_back(value);
    } else if (m_place == Place::offsets) {
      entry().offsets.push_back(value);
    } else {
      refuse(here() + " is a number, expected " + expected());
    }
    return true;
  }

  bool number_integer(number_integer_t) override { refuse(here() + " is negative, expected " + expected()); }
  bool number_float(number_float_t, const string_t&) override {
    refuse(here() + " is not a 64-bit integer, expected " + expected());
  }
  bool null() override { refuse(here() + " is null, expected " + expected()); }
  bool boolean(bool) override { refuse(here() + " is a bool, expected " + expected()); }
  bool binary(binary_t&) override { refuse(here() + " is binary, expected " + expected()); }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    // The parser quotes the offending text, which can be most of the header.
    constexpr std::size_t most_quoted = 200;
    refuse("not valid JSON at byte " + std::to_string(position) + ": " +
           std::string(error.what()).substr(0, most_quoted));
  }

 private:
  enum class Place { outside, top, metadata, tensor, shape, offsets };

  [[noreturn]] void refuse(const std::string& reason) const {
    throw FileError("'" + m_source + "' is not a valid safetensors file: header: " + reason);
  }

  HeaderEntry& entry() { return m_header.tensors.find(m_name)->second; }

  void note_field(const std::string& key) {
    for (auto& [name, seen] : m_fields) {
      if (key != name) continue;
      if (seen) refuse("the key '" + key + "' of tensor '" + m_name + "' occurs twice");
      seen = true;
      return;
    }
    refuse("tensor '" + m_name + "' has the unknown key '" + key + "'; known: dtype, shape, data_offsets");
  }

  std::string here() const {
    switch (m_place) {
      case Place::top:
        return "'" + m_name + "'";
      case Place::metadata:
        return "'" + m_key + "' of the metadata";
      default:
        return m_key + " of tensor '" + m_name + "'";
    }
  }

  std::string expected() const {
    switch (m_place) {
      case Place::top:
        return "an object";
      case Place::metadata:
        return "a text";
      case Place::tensor:
        return m_key == "dtype" ? "a text" : "an array of non-negative integers";
      default:
        return "a non-negative integer";
    }
  }

  struct Field {
    std::string_view name;
    bool seen;
  };

  Header& m_header;
  const std::string& m_source;
  Place m_place = Place::outside;
  std::string m_name;
  std::string m_key;
  bool m_has_metadata = false;
  Field m_fields[3] = {{"dtype", false}, {"shape", false}, {"data_offsets", false}};
};

}  // namespace

Header parse_header(std::string_view json, const std::string& source) {
  Header header;
  HeaderHandler handler(header, source);
  nlohmann::json::sax_parse(json.begin(), json.end(), &handler);
  return header;
}

}  // namespace kformer::Impl
