// SPDX-License-Identifier: MIT
#pragma once

#include <stdexcept>
#include <string>

/// \file
/// The typed errors of the library. Every text names the public function, each operand by role with its
/// extents, what was expected, and what to do.

namespace kformer {

/// Base class of all errors that the library throws itself. Kokkos and the standard library throw their own.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Extents, strides or types of the operands do not match.
class DimensionMismatch : public Error {
 public:
  using Error::Error;
};

/// The operands are consistent, but no kernel (or not the requested one) can do this.
class NotSupported : public Error {
 public:
  using Error::Error;
};

/// An allocation failed; the text contains the ledger and says what would fit.
class OutOfMemory : public Error {
 public:
  using Error::Error;
};

/// A file could not be read or written, or has unexpected contents.
class FileError : public Error {
 public:
  using Error::Error;
};

/// Ranks could not exchange data: one did not answer in time, or the library of messages failed. The communicator
/// cannot be used any more.
class CommunicationError : public Error {
 public:
  using Error::Error;
};

/// An input deck or an override is invalid; the text lists every fault with its place.
class DeckError : public Error {
 public:
  using Error::Error;
};

}  // namespace kformer
