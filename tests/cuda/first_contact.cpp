// SPDX-License-Identifier: MIT
// What the first program on a new GPU says of arrays and cases that are right, and of those that are not.
#include <boost/test/unit_test.hpp>

#include "first_contact/array.hpp"
#include "first_contact/report.hpp"
#include "kformer/core/error.hpp"

namespace kformer::FirstContact {

BOOST_AUTO_TEST_SUITE(first_contact)

/// Ten numbers, and what a reference without errors says of them.
HostTensor<Impl::Estimated<float>> numbers() {
  HostTensor<Impl::Estimated<float>> x({2, 5});
  for (std::size_t i = 0; i < 10; ++i) x.values()[i] = 0.5 + static_cast<double>(i);
  return x;
}
float number(std::size_t i) { return 0.5f + static_cast<float>(i); }

BOOST_AUTO_TEST_CASE(an_array_that_agrees_is_right) {
  Array<float> x({2, 5});
  x.fill(number);
  BOOST_TEST(x.judge("x", numbers()) == "");
}

BOOST_AUTO_TEST_CASE(an_array_that_nobody_wrote_is_wrong) {
  Array<float> x({2, 5});
  BOOST_TEST(x.judge("x", numbers()).starts_with("x: 10 of 10 elements out of tolerance"));
}

BOOST_AUTO_TEST_CASE(one_wrong_element_is_found) {
  Array<float> x({2, 5});
  x.fill([](std::size_t i) { return i == 7 ? 7.625f : number(i); });
  BOOST_TEST(x.judge("x", numbers()).starts_with("x: 1 of 10 elements out of tolerance"));
}

BOOST_AUTO_TEST_CASE(elements_outside_are_found) {
  for (const int place : {-64, -1, 10, 73}) {
    Array<float> x({2, 5});
    x.fill(number);
    x.data()[place] = 1;  // emulated memory is the host's
    BOOST_TEST(x.judge("x", numbers()) == "x: elements outside of the array have changed", "at " << place);
  }
}

Report report(const Choice& choice) { return {{"none", 90, 1}, choice}; }
constexpr auto nothing = [] {};
constexpr auto no_complaint = [] { return std::string(); };

BOOST_AUTO_TEST_CASE(one_wrong_case_is_an_end_of_1) {
  Report all_right = report({}), one_wrong = report({});
  for (Report* r : {&all_right, &one_wrong}) r->check("norm", "f32", nothing, no_complaint);
  one_wrong.check("norm", "bf16", nothing, [] { return std::string("y: wrong"); });
  BOOST_TEST(all_right.end() == 0);
  BOOST_TEST(one_wrong.end() == 1);
}

BOOST_AUTO_TEST_CASE(what_runs_nothing_is_an_end_of_1) { BOOST_TEST(report({.only = "nrom"}).end() == 1); }

BOOST_AUTO_TEST_CASE(a_kernel_is_judged_after_it_ran) {
  Report r = report({});
  int launches = 0;
  r.check(
      "norm", "f32", [&] { ++launches; }, [&] { return launches == 1 ? std::string() : "not launched once"; });
  BOOST_TEST(r.end() == 0);
}

BOOST_AUTO_TEST_CASE(a_refused_launch_ends_all) {
  Report r = report({});
  BOOST_CHECK_THROW(
      r.check("norm", "f32", [] { throw Error("norm: CUDA says: no kernel image"); }, no_complaint), Error);
}

BOOST_AUTO_TEST_CASE(cases_are_chosen_by_text_and_by_kernel) {
  BOOST_TEST(report({.only = "norm bf16"}).wants("norm", "bf16 3 x 8"));
  BOOST_TEST(!report({.only = "norm bf16"}).wants("norm", "f32 3 x 8"));
  Report first = report({.first = true});
  BOOST_TEST(first.wants("norm", "f32"));
  first.check("norm", "f32", nothing, no_complaint);
  BOOST_TEST(!first.wants("norm", "bf16"));
  BOOST_TEST(first.wants("rope", "bf16"));
}

BOOST_AUTO_TEST_CASE(kernels_of_warpgroups_need_exactly_9_0) {
  for (const int capability : {80, 89, 90, 100, 120})
    BOOST_TEST((Report({"none", capability}, {}).has_warpgroups() == (capability == 90)), "at " << capability);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kformer::FirstContact
