// SPDX-License-Identifier: MIT
// The memory that the system, control groups and the limit of the address space leave.
#include "measure/memory_available.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <string>
#include <vector>

#include "io/scratch_directory.hpp"

namespace kformer::Testing {
namespace {

/// Files of a system with 1024 GiB, of which the process has 3 pages.
struct System {
  ScratchDirectory root;

  System() {
    put("proc/meminfo",
        "MemTotal:       2147483648 kB\nMemFree:        1024 kB\nMemAvailable:   1073741824 kB\n");
    put("proc/self/statm", "3 2 1 1 0 1 0\n");
  }

  void put(const std::string& file, const std::string& text) const {
    std::filesystem::create_directories((root / file).parent_path());
    put_contents(root / file, text);
  }

  std::size_t available() const { return measure::host_memory_available(root.path()).value(); }
};

constexpr std::size_t system_has = std::size_t(1024) << 30;

/// Limits the address space while it lives.
class LimitedAddressSpace {
 public:
  explicit LimitedAddressSpace(std::size_t bytes) {
    ::getrlimit(RLIMIT_AS, &m_before);
    rlimit limit = m_before;
    limit.rlim_cur = std::min<rlim_t>(bytes, m_before.rlim_max);
    BOOST_REQUIRE(::setrlimit(RLIMIT_AS, &limit) == 0);
    m_bytes = limit.rlim_cur;
  }
  LimitedAddressSpace(const LimitedAddressSpace&) = delete;
  LimitedAddressSpace& operator=(const LimitedAddressSpace&) = delete;
  ~LimitedAddressSpace() { ::setrlimit(RLIMIT_AS, &m_before); }

  std::size_t bytes() const { return m_bytes; }

 private:
  rlimit m_before{};
  std::size_t m_bytes = 0;
};

}  // namespace

BOOST_AUTO_TEST_SUITE(memory_available)

BOOST_AUTO_TEST_CASE(without_limits_it_is_what_the_system_has) {
  const System system;
  BOOST_TEST(system.available() == system_has);
  system.put("proc/self/cgroup", "0::/\n");
  system.put("sys/fs/cgroup/memory.max", "max\n");
  system.put("sys/fs/cgroup/memory.current", "4096\n");
  BOOST_TEST(system.available() == system_has);
  BOOST_TEST(!measure::host_memory_available("/nowhere").has_value());
  BOOST_TEST(measure::memory_available("openmp").value() > 0u);
}

BOOST_AUTO_TEST_CASE(the_address_space_has_room_for_the_rest_of_its_limit) {
  const System system;
  // More than any program has, sanitizers included.
  system.put("proc/meminfo", "MemAvailable:   4398046511104 kB\n");
  const LimitedAddressSpace limited(std::size_t(1) << 50);
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  BOOST_TEST(system.available() == limited.bytes() - 3 * page);
  system.put("proc/self/statm", std::to_string(limited.bytes() / page + 1) + " 2 1 1 0 1 0\n");
  BOOST_TEST(system.available() == 0u);
}

BOOST_AUTO_TEST_CASE(files_in_memory_are_room_in_a_control_group) {
  const System system;
  system.put("proc/self/cgroup", "1:name=systemd:/\n0::/batch/job\n");
  system.put("sys/fs/cgroup/batch/job/memory.max", "10000000\n");
  system.put("sys/fs/cgroup/batch/job/memory.current", "9000000\n");
  BOOST_TEST(system.available() == 1'000'000u);
  system.put("sys/fs/cgroup/batch/job/memory.stat",
             "anon 1\nfile 7000000\ninactive_file 30000\nactive_file 5000\n");
  BOOST_TEST(system.available() == 1'035'000u);
  system.put("sys/fs/cgroup/batch/job/memory.current", "20000000\n");
  BOOST_TEST(system.available() == 0u);
}

BOOST_AUTO_TEST_CASE(a_control_group_is_limited_by_those_around_it) {
  const System system;
  system.put("proc/self/cgroup", "0::/batch/job\n");
  system.put("sys/fs/cgroup/batch/job/memory.max", "max\n");
  system.put("sys/fs/cgroup/batch/job/memory.current", "10\n");
  system.put("sys/fs/cgroup/batch/memory.max", "5000\n");
  system.put("sys/fs/cgroup/batch/memory.current", "2000\n");
  BOOST_TEST(system.available() == 3000u);
  system.put("sys/fs/cgroup/memory.max", "2500\n");
  system.put("sys/fs/cgroup/memory.current", "2100\n");
  BOOST_TEST(system.available() == 400u);
}

BOOST_AUTO_TEST_CASE(control_groups_of_version_1_limit_too) {
  const System system;
  system.put("proc/self/cgroup", "5:cpu,cpuacct:/other\n4:hugetlb,memory:/of/the/host\n");
  system.put("sys/fs/cgroup/memory/memory.limit_in_bytes", "7000\n");
  system.put("sys/fs/cgroup/memory/memory.usage_in_bytes", "6000\n");
  system.put("sys/fs/cgroup/memory/memory.stat", "cache 1\ntotal_inactive_file 20\ntotal_active_file 3\n");
  BOOST_TEST(system.available() == 1023u);
  system.put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  BOOST_TEST(system.available() == system_has);
}

BOOST_AUTO_TEST_CASE(ranks_share_the_memory_of_a_gpu_only_if_they_run_on_it) {
  // Two machines with GPUs at the same addresses: four ranks on GPUs of their own, two on one, two on the host of the first.
  const std::vector<measure::MemoryPlace> all{{0, 101}, {0, 202}, {4, 101}, {4, 202},
                                              {4, 303}, {4, 303}, {0, -1},  {0, -1}};
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    BOOST_TEST(measure::part_of_memory(1000, all[rank], all) == (rank < 4 ? 1000u : 500u), "rank " << rank);
  BOOST_TEST(measure::part_of_memory(1000, {9, 101}, all) == 1000u);
}

BOOST_AUTO_TEST_CASE(memory_of_the_host_belongs_to_no_device) {
  for (const char* space : {"serial", "openmp"}) BOOST_TEST(measure::device_address(space) == -1);
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
