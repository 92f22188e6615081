// SPDX-License-Identifier: MIT
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

namespace kformer::Impl::data {

/// A file descriptor that closes itself.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int number) : m_number(number) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { close(); }

  int number() const { return m_number; }
  void set(int number);
  void close();

 private:
  int m_number = -1;
};

/// A program that answers each line on its standard input with one on its standard output.
class LineProgram {
 public:
  /// \param command   the program and its arguments
  /// \param timeout_s for one answer
  /// \throws RewardError if it cannot be started
  LineProgram(std::vector<std::string> command, double timeout_s);
  LineProgram(const LineProgram&) = delete;
  LineProgram& operator=(const LineProgram&) = delete;
  /// Ends it: first by the end of its input, after a second by a signal.
  ~LineProgram();

  /// Writes `line` and an end of line; returns the answer without its end.
  /// \throws RewardError if there is none; the program is killed then, and this throws from then on
  std::string ask(const std::string& line);

  /// Kills the program and throws.
  [[noreturn]] void fail(const std::string& what);

 private:
  using Time = std::chrono::steady_clock::time_point;

  void start(const std::vector<std::string>& command);
  /// Waits until something can be written or read, and does it.
  void exchange(std::string_view& unwritten, Time end);
  void write(std::string_view& unwritten);
  void read();
  bool has_line() const;

  /// Kills the program and throws; says how the program ended, if it did, or `what`.
  [[noreturn]] void fail_at_end(const std::string& what);
  /// Waits for its end, but not long.
  void wait() const;
  /// "ended with exit code 1"; empty: it runs.
  std::string how_it_ended() const;
  void kill();

  std::string m_name;
  double m_timeout_s;
  pid_t m_process = -1;  ///< −1: none
  Descriptor m_input, m_output;
  std::string m_received;
  std::string m_failure;  ///< what the first failure was
};

}  // namespace kformer::Impl::data
