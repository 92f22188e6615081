// SPDX-License-Identifier: MIT
#include "data/rewards/line_program.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <string_view>
#include <thread>
#include <utility>

#include "kformer/data/rewards.hpp"

extern char** environ;

namespace kformer::Impl::data {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t longest_answer = 1 << 20;  // bytes
constexpr std::chrono::milliseconds patience(1000), nap(2);

/// Keeps the signal of a broken pipe from this thread: to write returns an error instead.
class WithoutPipeSignal {
 public:
  WithoutPipeSignal() {
    sigemptyset(&m_pipe);
    sigaddset(&m_pipe, SIGPIPE);
    sigset_t pending;
    sigemptyset(&pending);
    sigpending(&pending);
    m_was_pending = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &m_pipe, &m_before);
  }
  WithoutPipeSignal(const WithoutPipeSignal&) = delete;
  WithoutPipeSignal& operator=(const WithoutPipeSignal&) = delete;
  ~WithoutPipeSignal() {
    const timespec now{};
    if (!m_was_pending)
      while (sigtimedwait(&m_pipe, nullptr, &now) < 0 && errno == EINTR) {
      }
    pthread_sigmask(SIG_SETMASK, &m_before, nullptr);
  }

 private:
  sigset_t m_pipe, m_before;
  bool m_was_pending = false;
};

/// What a new process is to be like: its streams, no other files, a group of its own, the usual signals.
class Spawning {
 public:
  Spawning(int input, int output) {
    posix_spawn_file_actions_init(&m_files);
    posix_spawn_file_actions_adddup2(&m_files, input, STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&m_files, output, STDOUT_FILENO);
#if defined(__GLIBC_PREREQ)
#if __GLIBC_PREREQ(2, 34)
    // Or the program would keep locks of this process.
    posix_spawn_file_actions_addclosefrom_np(&m_files, STDERR_FILENO + 1);
#endif
#endif
    posix_spawnattr_init(&m_attributes);
    posix_spawnattr_setflags(&m_attributes,
                             POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setpgroup(&m_attributes, 0);
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_setsigmask(&m_attributes, &none);
    posix_spawnattr_setsigdefault(&m_attributes, &all);
  }
  Spawning(const Spawning&) = delete;
  Spawning& operator=(const Spawning&) = delete;
  ~Spawning() {
    posix_spawn_file_actions_destroy(&m_files);
    posix_spawnattr_destroy(&m_attributes);
  }

  /// \return 0, or the number of an error
  int start(const std::vector<std::string>& command, pid_t& process) const {
    std::vector<std::string> copies = command;
    std::vector<char*> arguments;
    for (std::string& argument : copies) arguments.push_back(argument.data());
    arguments.push_back(nullptr);
    return ::posix_spawnp(&process, arguments[0], &m_files, &m_attributes, arguments.data(), environ);
  }

 private:
  posix_spawn_file_actions_t m_files;
  posix_spawnattr_t m_attributes;
};

void make_pipe(Descriptor& end_to_read, Descriptor& end_to_write) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0)
    throw RewardError(fmt::format("kformer::Rewards: cannot make a pipe: {}", std::strerror(errno)));
  end_to_read.set(ends[0]);
  end_to_write.set(ends[1]);
}

}  // namespace

void Descriptor::set(int number) {
  close();
  m_number = number;
}

void Descriptor::close() {
  if (m_number >= 0) ::close(m_number);
  m_number = -1;
}

LineProgram::LineProgram(std::vector<std::string> command, double timeout_s)
    : m_name(command.front()), m_timeout_s(timeout_s) {
  start(command);
}

void LineProgram::start(const std::vector<std::string>& command) {
  Descriptor its_input, its_output;
  make_pipe(its_input, m_input);
  make_pipe(m_output, its_output);
  if (const int error = Spawning(its_input.number(), its_output.number()).start(command, m_process);
      error != 0) {
    m_process = -1;
    throw RewardError(fmt::format("kformer::Rewards: cannot start '{}': {}", m_name, std::strerror(error)));
  }
  ::fcntl(m_input.number(), F_SETFL, O_NONBLOCK);
  ::fcntl(m_output.number(), F_SETFL, O_NONBLOCK);
}

LineProgram::~LineProgram() {
  m_input.close();
  m_output.close();
  wait();
  kill();
}

std::string LineProgram::ask(const std::string& line) {
  if (!m_failure.empty())
    throw RewardError(
        fmt::format("kformer::Rewards: the program '{}' is not asked again, because {}", m_name, m_failure));
  const auto end =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(m_timeout_s));
  const std::string sent = line + '\n';
  std::string_view unwritten = sent;
  const WithoutPipeSignal without_signal;
  read();
  if (!m_received.empty()) fail("it said something before it was asked, or more than one line");
  while (!has_line()) exchange(unwritten, end);
  if (!unwritten.empty()) fail("it answered before it read the line");
  const auto length = m_received.find('\n');
  if (length + 1 != m_received.size()) fail("it answered with more than one line");
  std::string answer = std::move(m_received);
  m_received.clear();
  answer.pop_back();
  return answer;
}

bool LineProgram::has_line() const { return m_received.find('\n') != std::string::npos; }

void LineProgram::exchange(std::string_view& unwritten, Time end) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
  if (left <= 0) fail(fmt::format("it did not answer within {} s", m_timeout_s));
  pollfd ends[2] = {{m_output.number(), POLLIN, 0}, {unwritten.empty() ? -1 : m_input.number(), POLLOUT, 0}};
  constexpr decltype(left) longest = 1000;  // a poll takes an int
  if (::poll(ends, 2, static_cast<int>(std::min(left, longest))) <= 0) return;
  if (ends[0].revents != 0) read();
  if (ends[1].revents != 0 && !has_line()) write(unwritten);
}

void LineProgram::write(std::string_view& unwritten) {
  const ssize_t written = ::write(m_input.number(), unwritten.data(), unwritten.size());
  if (written >= 0)
    unwritten.remove_prefix(static_cast<std::size_t>(written));
  else if (errno == EPIPE)
    fail_at_end("closed its input");
  else if (errno != EAGAIN && errno != EINTR)
    fail(fmt::format("it cannot be written to: {}", std::strerror(errno)));
}

void LineProgram::read() {
  char buffer[4096];
  while (!has_line()) {
    const ssize_t count = ::read(m_output.number(), buffer, sizeof buffer);
    if (count == 0) fail_at_end("closed its output");
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return;
    if (count < 0) fail(fmt::format("it cannot be read from: {}", std::strerror(errno)));
    m_received.append(buffer, static_cast<std::size_t>(count));
    if (m_received.size() > longest_answer)
      fail(fmt::format("its answer has more than {} bytes without an end of line", longest_answer));
  }
}

void LineProgram::fail_at_end(const std::string& what) {
  wait();
  const std::string end = how_it_ended();
  fail("it " + (end.empty() ? what : end));
}

void LineProgram::fail(const std::string& what) {
  m_failure = what;
  kill();
  throw RewardError(fmt::format("kformer::Rewards: the program '{}' failed: {}", m_name, what));
}

void LineProgram::wait() const {
  const auto end = Clock::now() + patience;
  while (how_it_ended().empty() && Clock::now() < end) std::this_thread::sleep_for(nap);
}

std::string LineProgram::how_it_ended() const {
  if (m_process < 0) return "ended";
  siginfo_t info{};
  // It stays a zombie, so that its number is that of no other process.
  const int found = ::waitid(P_PID, static_cast<id_t>(m_process), &info, WEXITED | WNOHANG | WNOWAIT);
  if (found != 0) return errno == EINTR ? "" : "ended";
  if (info.si_pid == 0) return {};
  if (info.si_code == CLD_EXITED) return fmt::format("ended with exit code {}", info.si_status);
  return fmt::format("was ended by signal {} ({})", info.si_status, ::strsignal(info.si_status));
}

void LineProgram::kill() {
  m_input.close();
  m_output.close();
  if (m_process < 0) return;
  ::kill(-m_process, SIGKILL);
  while (::waitpid(m_process, nullptr, 0) < 0 && errno == EINTR) {
  }
  m_process = -1;
}

}  // namespace kformer::Impl::data
