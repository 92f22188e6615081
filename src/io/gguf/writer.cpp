// SPDX-License-Identifier: MIT
#include "io/gguf/writer.hpp"

#include <span>

#include "io/atomic_file.hpp"
#include "kformer/io/gguf.hpp"

namespace kformer::Impl {

namespace {

constexpr std::size_t alignment = 32;  // without `general.alignment`
constexpr std::uint32_t f32_tensor = 0;

template <class N>
void put(std::string& to, N number) {
  to.append(reinterpret_cast<const char*>(&number), sizeof(number));
}

void put_text(std::string& to, const std::string& text) {
  put(to, static_cast<std::uint64_t>(text.size()));
  to += text;
}

void pad(std::string& to) { to.resize((to.size() + alignment - 1) / alignment * alignment, '\0'); }

}  // namespace

void GgufWriter::add(const std::string& key, const std::string& value) {
  put_text(m_metadata, key);
  put(m_metadata, static_cast<std::uint32_t>(GgufType::string));
  put_text(m_metadata, value);
  ++m_metadata_count;
}

void GgufWriter::add(const std::string& key, float value) {
  put_text(m_metadata, key);
  put(m_metadata, static_cast<std::uint32_t>(GgufType::f32));
  put(m_metadata, value);
  ++m_metadata_count;
}

void GgufWriter::add(const std::string& name, std::size_t rows, std::vector<float> values) {
  m_tensors.push_back({name, rows, std::move(values)});
}

void GgufWriter::write(const std::filesystem::path& path) const {
  std::string header("GGUF"), data;
  put(header, std::uint32_t{3});
  put(header, static_cast<std::uint64_t>(m_tensors.size()));
  put(header, m_metadata_count);
  header += m_metadata;
  for (const Tensor& tensor : m_tensors) {
    put_text(header, tensor.name);
    put(header, std::uint32_t{2});
    put(header, static_cast<std::uint64_t>(tensor.values.size() / tensor.rows));  // the fastest extent first
    put(header, static_cast<std::uint64_t>(tensor.rows));
    put(header, f32_tensor);
    put(header, static_cast<std::uint64_t>(data.size()));
    data.append(reinterpret_cast<const char*>(tensor.values.data()), tensor.values.size() * sizeof(float));
    pad(data);
  }
  pad(header);
  const auto bytes = [](const std::string& part) { return std::as_bytes(std::span(part)); };
  const std::span<const std::byte> pieces[] = {bytes(header), bytes(data)};
  replace_file(path, pieces);
}

}  // namespace kformer::Impl
