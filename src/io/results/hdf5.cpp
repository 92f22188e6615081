// SPDX-License-Identifier: MIT
#include "kformer/io/hdf5.hpp"

#include "kformer/core/error.hpp"

namespace kformer::hdf5 {
namespace {

herr_t take_innermost(unsigned depth, const H5E_error2_t* record, void* text) {
  if (depth == 0 && record->desc != nullptr) *static_cast<std::string*>(text) = record->desc;
  return 0;
}

/// Reads a name through one of HDF5's "ask for the length, then for the characters" functions.
std::string name_by(ssize_t (*get)(hid_t, char*, size_t), hid_t id) {
  const ssize_t length = get(id, nullptr, 0);
  if (length <= 0) return {};
  std::string name(static_cast<std::size_t>(length), '\0');
  get(id, name.data(), name.size() + 1);
  return name;
}

}  // namespace

std::string innermost_reason() {
  std::string reason = "no reason given";
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, take_innermost, &reason);
  return reason;
}

void fail(std::string_view action, std::string_view name, hid_t location) {
  const std::string reason = innermost_reason();
  std::string text = "HDF5 cannot " + std::string(action) + " '" + std::string(name) + "'";
  if (location >= 0)
    text += " in '" + name_by(H5Iget_name, location) + "' of '" + name_by(H5Fget_name, location) + "'";
  throw FileError(text + ": " + reason);
}

QuietErrors::QuietErrors() {
  H5Eget_auto2(H5E_DEFAULT, &m_previous, &m_previous_data);
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
}

QuietErrors::~QuietErrors() { H5Eset_auto2(H5E_DEFAULT, m_previous, m_previous_data); }

Datatype utf8_string_type() {
  Datatype type(check(H5Tcopy(H5T_C_S1), "create type", "string"));
  check(H5Tset_size(type.get(), H5T_VARIABLE), "create type", "string");
  check(H5Tset_cset(type.get(), H5T_CSET_UTF8), "create type", "string");
  return type;
}

std::string library_version() {
  unsigned major = 0;
  unsigned minor = 0;
  unsigned release = 0;
  check(H5get_libversion(&major, &minor, &release), "ask for", "the library's version");
  return std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(release);
}

}  // namespace kformer::hdf5
