// An SQLite archive: files by name in one database, each deflated (`sqlite3 FILE -A` lists and unpacks it too).
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>

namespace ak::store {

/// A file in an archive.
struct Packed {
  std::string data;   // deflated, or as it is where that is no smaller
  int64_t bytes = 0;  // unpacked
};

/// errors: out of memory.
Packed pack(std::string_view content);
/// errors: damaged.
std::string unpack(const Packed& packed);

/// Write a new archive at `path`, which must not exist.
/// errors: the disk is full, no permission.
void write_archive(const std::filesystem::path& path, const std::map<std::string, Packed>& files);
/// errors: not an archive, damaged.
std::map<std::string, Packed> read_archive(const std::filesystem::path& path);

}  // namespace ak::store
