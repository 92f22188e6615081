// SPDX-License-Identifier: MIT
#pragma once

#include <hdf5.h>

#include <cstdio>
#include <string>
#include <string_view>
#include <utility>

/// \file
/// A thin owner of HDF5 identifiers, and the translation of HDF5 errors into FileError.

namespace kformer::hdf5 {

/// Text of the innermost record of this thread's HDF5 error stack: what actually went wrong, without the chain
/// of callers. Any HDF5 call made before this one clears the stack.
std::string innermost_reason();

/// Throws the FileError of a failed HDF5 call.
/// \param action   what was tried, for instance "create dataset"
/// \param name     on what
/// \param location identifier of the file or group it was tried in, or H5I_INVALID_HID
[[noreturn]] void fail(std::string_view action, std::string_view name, hid_t location = H5I_INVALID_HID);

/// Returns `result` of an HDF5 call unless it is negative, HDF5's sign of failure.
/// \throws FileError as fail() does
template <class Result>
Result check(Result result, std::string_view action, std::string_view name, hid_t location = H5I_INVALID_HID) {
  if (result < 0) fail(action, name, location);
  return result;
}

/// During its lifetime, HDF5 does not print its error stack to stderr on this thread (check() puts it into the
/// exception). Restores what was set before, so that a host program's own error handler survives.
class QuietErrors {
 public:
  /// Silences HDF5's printing.
  QuietErrors();
  /// Restores HDF5's printing as it was.
  ~QuietErrors();
  QuietErrors(const QuietErrors&) = delete;             ///< not copyable
  QuietErrors& operator=(const QuietErrors&) = delete;  ///< not copyable

 private:
  H5E_auto2_t m_previous = nullptr;
  void* m_previous_data = nullptr;
};

/// Owns one HDF5 identifier and closes it with `Close`.
///
/// A failing close is reported on stderr and never thrown: destructors also run while another exception
/// propagates.
template <herr_t (*Close)(hid_t)>
class H5Handle {
 public:
  H5Handle() = default;
  /// Takes ownership of `id`.
  explicit H5Handle(hid_t id) : m_id(id) {}
  /// Takes over the identifier of `other`, which is empty afterwards.
  H5Handle(H5Handle&& other) noexcept : m_id(std::exchange(other.m_id, H5I_INVALID_HID)) {}
  /// Swaps the identifiers.
  H5Handle& operator=(H5Handle&& other) noexcept {
    std::swap(m_id, other.m_id);
    return *this;
  }
  ~H5Handle() {
    if (m_id >= 0 && Close(m_id) < 0) {
      std::fprintf(stderr, "kformer: HDF5 could not close an object: %s\n", innermost_reason().c_str());
    }
  }

  /// The identifier, still owned by this handle.
  hid_t get() const { return m_id; }

 private:
  hid_t m_id = H5I_INVALID_HID;
};

using File = H5Handle<H5Fclose>;          ///< an open file
using Group = H5Handle<H5Gclose>;         ///< an open group
using Dataset = H5Handle<H5Dclose>;       ///< an open dataset
using Dataspace = H5Handle<H5Sclose>;     ///< extents of a dataset or attribute
using Datatype = H5Handle<H5Tclose>;      ///< an element type
using Attribute = H5Handle<H5Aclose>;     ///< an open attribute
using PropertyList = H5Handle<H5Pclose>;  ///< creation or access properties

/// The type of all our strings: variable length, UTF-8.
Datatype utf8_string_type();

/// Version of the HDF5 library that runs, such as "1.14.5".
std::string library_version();

}  // namespace kformer::hdf5
