// Files and directories: whole-file reads, atomic writes, scratch directories, locks.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "core/json.h"

namespace ak {

/// A file descriptor that closes itself.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    reset(other.release());
    return *this;
  }
  ~Descriptor() { reset(); }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }
  void reset(int fd = -1);

 private:
  int fd_ = -1;
};

/// errors: the file cannot be read.
std::string read_file(const std::filesystem::path& path);
std::optional<std::string> read_file_if_exists(const std::filesystem::path& path);

/// Replace the file whole or not at all: write beside it, flush to disk, rename. Makes parent directories.
/// errors: the disk is full, no permission; the old file is intact.
void write_file(const std::filesystem::path& path, std::string_view content);

/// errors: not readable, not JSON.
Json read_json(const std::filesystem::path& path);
/// Indented, atomic.
void write_json(const std::filesystem::path& path, const Json& value);

/// Whether `path` is `directory` or lies below it, by their names alone.
bool lies_within(const std::filesystem::path& path, const std::filesystem::path& directory);

/// An exclusive advisory lock, given up when the object or the process ends.
class FileLock {
 public:
  /// Take the lock, or return nothing if another process holds it.
  static std::optional<FileLock> try_acquire(const std::filesystem::path& path);
  /// The same of an open file.
  static std::optional<FileLock> try_acquire(Descriptor file);

 private:
  explicit FileLock(Descriptor fd) : fd_(std::move(fd)) {}
  Descriptor fd_;
};

/// A directory of its own that is removed with all its content at the end; in shared memory, which holds what is left until a reboot, after
/// a kill by the next process that makes one of its kind.
class TemporaryDirectory {
 public:
  /// Make `<parent>/<prefix>XXXXXX`; without a parent in shared memory, or the system's temporary directory where there is none. The file
  /// `owner_file` in it is locked as long as it is in use.
  explicit TemporaryDirectory(std::string_view prefix, const std::filesystem::path& parent = {});
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  const std::filesystem::path& path() const { return path_; }
  static constexpr const char* owner_file = ".owner";

 private:
  std::filesystem::path path_;
  std::optional<FileLock> owner_;
};

/// ${XDG_CACHE_HOME:-~/.cache}/autokernel
std::filesystem::path cache_directory();
/// ${XDG_DATA_HOME:-~/.local/share}/autokernel
std::filesystem::path data_directory();

/// Where kernels/, playbook/ and python/ are: $AUTOKERNEL_HOME, else a directory above the executable that has kernels/.
/// errors: not found.
std::filesystem::path home_directory();

/// The running program's own file.
std::filesystem::path executable_path();

}  // namespace ak
