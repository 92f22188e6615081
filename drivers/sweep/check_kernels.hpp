// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "sweep/measurement.hpp"

/// \file
/// Where the reference of a check runs, and by which kernels: by none that the case ran. So a wrong kernel is
/// never compared with itself.

namespace kformer::drivers {

/// The execution space of the reference of a case: the case's own on a host, otherwise a host space.
std::string reference_space(const std::string& space);

/// The portable kernels of all functions: what the naive computation runs.
std::string portable_kernels();

/// The kernel that a check runs in place of a portable kernel that the case ran.
enum class Instead {
  best_of_others,  ///< the best of the other kernels, where there is one that is not slow
  reference        ///< the reference, however slow
};

/// The kernels of the reference of a case: the portable ones, unless the case ran them.
/// \param ran     "function:kernel ..." of the case
/// \param instead of those
std::string reference_kernels(const std::string& ran, Instead instead = Instead::best_of_others);

/// The same with the products of the host BLAS in place of the portable ones: it is no kernel of Kformer, and several
/// times faster. Unchanged if the case ran it.
std::string with_host_blas(std::string kernels, const std::string& ran);

/// Whether a run chose this kernel for this function; `name` is "function:kernel".
bool has_kernel(const std::string& ran, const std::string& name);

/// The kernels that ran on both sides, "function:kernel ..."; empty if there are none.
std::string shared_kernels(const std::string& ran, const std::string& reference);

/// Whether the memory of the space holds `result.check_bytes`; otherwise the message says what is missing.
bool fits_check(const std::string& space, Measurement& result);

/// Says that the check of a case was interrupted; its status stays as it is.
void interrupted(Measurement& result);

/// Whether `result.check_kernels` has none of `result.kernels`; otherwise the message names them.
/// \param before "function:kernel ...", what the case ran before it was measured
bool independent(Measurement& result, const std::string& before = {});

}  // namespace kformer::drivers
