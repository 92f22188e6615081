// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "decks/sweep/sweep.hpp"
#include "sweep/measurement.hpp"

/// \file
/// Where both computations of a check run, the reference and the naive one, and by which kernels: by none that
/// the case ran. So a wrong kernel is never compared with itself, and does not set its own tolerance.

namespace kformer::drivers {

/// The execution space that checks a case: the case's own on a host, otherwise a host space, because only there
/// every function has a second kernel.
std::string reference_space(const std::string& space);

/// The kernel that a check runs in place of a portable kernel that the case ran.
enum class Instead {
  best_of_others,  ///< the best of the other kernels, where there is one that is not slow
  reference        ///< the reference, however slow
};

/// The kernels that check a case: the portable ones, unless the case ran them. Instead of a portable kernel that
/// is the only one besides the reference, the reference runs.
/// \param ran     "function:kernel ..." of the case
/// \param instead of those
std::string reference_kernels(const std::string& ran, Instead instead = Instead::best_of_others);

/// The same with the portable kernels that the case ran, of functions that sum: the order of a sum determines
/// its error. Unchanged if the case ran none.
std::string with_own_sums(std::string kernels, const std::string& ran);

/// The same with the products of the host BLAS in place of the portable ones: it is no kernel of Kformer, and several
/// times faster. Unchanged if the case ran it; a portable kernel that the case ran stays.
std::string with_host_blas(std::string kernels, const std::string& ran);

/// The kernels of both, "function:kernel ...", each once.
std::string joined(std::string ran, const std::string& more);

/// Whether a run chose this kernel for this function; `name` is "function:kernel".
bool has_kernel(const std::string& ran, const std::string& name);

/// The kernels that ran on both sides, "function:kernel ..."; empty if there are none.
std::string shared_kernels(const std::string& ran, const std::string& reference);

/// Whether the free memory of the space is enough for `result.check_bytes` without `result.check_held`;
/// otherwise the message says what is missing.
/// \param processes that check at the same time, each with its share of the memory
bool fits_check(const std::string& space, Measurement& result, int processes = 1);

/// Why the deck wants no check of a case of so many tokens: a message. Empty: it wants one.
std::string why_no_check(const CheckTable& check, std::int64_t seq_len);

/// Calls `check`. If that throws, the case keeps what was measured and stays unchecked; its message says why.
void check_if_possible(Measurement& result, const std::function<void()>& check);

/// The message of a case whose check was interrupted.
inline constexpr const char* check_was_interrupted = "not checked: the check was interrupted";

/// Says so; the status of the case stays as it is.
void interrupted(Measurement& result);

/// Whether `result.check_kernels` has none of `result.kernels`; otherwise the message names them.
/// \param before "function:kernel ...", what the case ran before it was measured
bool independent(Measurement& result, const std::string& before = {});

/// For a case whose errors were recorded and that nobody wants judged: it stays unchecked, and the message says so.
void not_judged(Measurement& result);

/// Whether the naive computation, which sets the limits, ran none of `result.kernels`; otherwise the message
/// names them.
/// \param naive  "function:kernel ...", what it ran
/// \param before "function:kernel ...", what the case ran before it was measured
bool has_independent_limits(Measurement& result, const std::string& naive, const std::string& before = {});

}  // namespace kformer::drivers
