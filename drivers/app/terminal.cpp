// SPDX-License-Identifier: MIT
#include "app/terminal.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>

#include "app/say.hpp"

namespace kformer::drivers {

namespace {

// A terminal that knows no control sequences says so.
bool is_dumb() {
  const char* kind = std::getenv("TERM");
  return kind == nullptr || std::string_view(kind) == "dumb";
}

// Columns of the terminal; what goes on in a second line would stay there.
std::size_t width_of(std::FILE* stream) {
  winsize size{};
  return ::ioctl(::fileno(stream), TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace

bool is_terminal(std::FILE* stream) { return ::isatty(::fileno(stream)) != 0; }

std::string printable(std::string_view text) {
  std::string shown;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const bool usual = byte == '\n' || byte == '\t' || (byte >= 0x20 && byte != 0x7f);
    // U+0080 to U+009F in UTF-8.
    const bool second_set =
        byte == 0xc2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) - 0x80u < 0x20;
    if (usual && !second_set)
      shown += text[i];
    else
      shown += fmt::format("\\x{:02x}", second_set ? static_cast<unsigned char>(text[++i]) : byte);
  }
  return shown;
}

bool shows_colour(std::FILE* stream) {
  const char* forbidden = std::getenv("NO_COLOR");
  if (forbidden != nullptr && *forbidden != '\0') return false;
  return is_terminal(stream) && !is_dumb();
}

std::string coloured(const std::string& text, Tone tone) {
  switch (tone) {
    case Tone::good:
      return "\033[32m" + text + "\033[0m";
    case Tone::doubtful:
      return "\033[33m" + text + "\033[0m";
    case Tone::bad:
      return "\033[31m" + text + "\033[0m";
    case Tone::plain:
      break;
  }
  return text;
}

std::string rough_duration(double seconds) {
  const auto whole = static_cast<std::int64_t>(std::ceil(seconds));
  if (whole < 100) return fmt::format("{} s", whole);
  const std::int64_t minutes = (whole + 30) / 60;
  if (minutes < 100) return fmt::format("{} min", minutes);
  return fmt::format("{} h {} min", minutes / 60, minutes % 60);
}

std::string progress_text(std::size_t index, std::size_t steps, const std::string& name, double elapsed) {
  std::string text = fmt::format("[{}/{}] {}", index + 1, steps, name);
  if (index == 0) return text;
  const double each = elapsed / static_cast<double>(index);
  return text + fmt::format(", about {} left", rough_duration(each * static_cast<double>(steps - index)));
}

ProgressLine::ProgressLine(std::size_t steps)
    : m_steps(steps), m_shown(is_terminal(stderr) && !is_dumb()), m_start(std::chrono::steady_clock::now()) {}

void ProgressLine::begin(std::size_t index, const std::string& name) {
  if (!m_shown) return;
  const double elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - m_start).count();
  // A byte less than there are columns: the cursor stays in the line.
  say(stderr, "\r\033[K{:.{}}", progress_text(index, m_steps, name, elapsed), width_of(stderr) - 1);
  std::fflush(stderr);
}

void ProgressLine::clear() const {
  if (m_shown) say(stderr, "\r\033[K");
}

}  // namespace kformer::drivers
