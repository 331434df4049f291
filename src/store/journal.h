// The append-only, checksummed log that is the truth of a run (docs/formats/run-directory.md).
#pragma once

#include <filesystem>
#include <memory>
#include <string_view>
#include <vector>

#include "core/file.h"
#include "core/json.h"

namespace ak::store {

/// One file, one record a line, each with a CRC-32C. Survives a kill at any byte: what was appended and flushed is there
/// again, and a torn last line is cut off.
class Journal {
 public:
  /// Open or create; cut what is not whole.
  /// errors: not readable or writable; a record of a newer format.
  static Journal open(const std::filesystem::path& path);

  const std::vector<Json>& records() const;
  /// Append and flush to disk before returning.
  /// errors: the disk is full: nothing of the record remains in the file.
  void append(const Json& record);

  Journal(Journal&&) noexcept;
  ~Journal();

 private:
  struct State;
  explicit Journal(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

/// Parse the whole lines of a journal's text; returns the records, and in `valid_bytes` where they end.
std::vector<Json> parse_journal(std::string_view text, size_t& valid_bytes);

}  // namespace ak::store
