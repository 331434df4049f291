// A line is {"crc":"xxxxxxxx","record":{…}}: fixed positions, so that the checksum covers the record's bytes as written.
// A record is flushed to disk before append() returns; after a failed append the file is cut back to what was whole.
#include "store/journal.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "core/crc32c.h"
#include "core/error.h"

namespace ak::store {
namespace {

constexpr std::string_view head = "{\"crc\":\"", middle = "\",\"record\":", tail = "}";
constexpr size_t crc_digits = 8;
constexpr size_t record_begin = head.size() + crc_digits + middle.size();

std::string line_of(const Json& record) {
  const std::string body = record.dump(-1, ' ', false, Json::error_handler_t::replace);
  return fmt::format("{}{:08x}{}{}{}\n", head, crc32c(body), middle, body, tail);
}

/// The record of a whole line, or a discarded value.
Json parse_line(std::string_view line) {
  const Json nothing(Json::value_t::discarded);
  if (line.size() < record_begin + tail.size() || line.substr(0, head.size()) != head) return nothing;
  if (line.substr(head.size() + crc_digits, middle.size()) != middle || line.back() != '}') return nothing;
  const std::string_view body = line.substr(record_begin, line.size() - record_begin - tail.size());
  if (line.substr(head.size(), crc_digits) != fmt::format("{:08x}", crc32c(body))) return nothing;
  return Json::parse(body, nullptr, false);
}

}  // namespace

struct Journal::State {
  std::filesystem::path path;
  Descriptor fd;
  std::vector<Json> records;
  off_t end = 0;
};

std::vector<Json> parse_journal(std::string_view text, size_t& valid_bytes) {
  std::vector<Json> records;
  valid_bytes = 0;
  while (valid_bytes < text.size()) {
    const size_t newline = text.find('\n', valid_bytes);
    if (newline == std::string_view::npos) break;
    Json record = parse_line(text.substr(valid_bytes, newline - valid_bytes));
    if (record.is_discarded()) break;
    records.push_back(std::move(record));
    valid_bytes = newline + 1;
  }
  return records;
}

Journal::Journal(std::unique_ptr<State> state) : state_(std::move(state)) {}
Journal::Journal(Journal&&) noexcept = default;
Journal::~Journal() = default;

Journal Journal::open(const std::filesystem::path& path) {
  auto state = std::make_unique<State>();
  state->path = path;
  state->fd = Descriptor(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!state->fd.valid()) throw Error("cannot open " + path.string() + ": " + std::strerror(errno));
  size_t valid_bytes = 0;
  state->records = parse_journal(read_file(path), valid_bytes);
  state->end = static_cast<off_t>(valid_bytes);
  if (::ftruncate(state->fd.get(), state->end) != 0) throw Error("cannot mend " + path.string() + ": " + std::strerror(errno));
  return Journal(std::move(state));
}

const std::vector<Json>& Journal::records() const { return state_->records; }

void Journal::append(const Json& record) {
  const std::string line = line_of(record);
  size_t written = 0;
  while (written < line.size()) {
    const ssize_t count =
        ::pwrite(state_->fd.get(), line.data() + written, line.size() - written, state_->end + static_cast<off_t>(written));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) break;
    written += static_cast<size_t>(count);
  }
  if (written < line.size() || ::fdatasync(state_->fd.get()) != 0) {
    const int error = errno;
    [[maybe_unused]] const int ignored = ::ftruncate(state_->fd.get(), state_->end);
    throw Error("cannot append to " + state_->path.string() + ": " + std::strerror(error),
                "nothing that was recorded is lost; free some space and run the same command to resume");
  }
  state_->end += static_cast<off_t>(line.size());
  state_->records.push_back(record);
}

}  // namespace ak::store
