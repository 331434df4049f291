// POSIX files behind file.h.
#include "core/file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/error.h"

namespace ak {
namespace {

namespace fs = std::filesystem;

std::string reason() { return std::strerror(errno); }

std::string advice_for(int error) {
  if (error == ENOSPC || error == EDQUOT) return "free some space; nothing that was written before is lost, and the same command resumes";
  if (error == EACCES || error == EPERM || error == EROFS)
    return "check the permissions of the directory, or choose another with --run-dir";
  return {};
}

void write_all(int fd, std::string_view content, const fs::path& path) {
  while (!content.empty()) {
    const ssize_t written = ::write(fd, content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw Error("cannot write " + path.string() + ": " + reason(), advice_for(errno));
    content.remove_prefix(static_cast<size_t>(written));
  }
}

fs::path user_directory(const char* variable, const char* below_home) {
  if (const char* value = std::getenv(variable); value != nullptr && *value != '\0') return fs::path(value) / "autokernel";
  const char* home = std::getenv("HOME");
  return fs::path(home != nullptr ? home : "/tmp") / below_home / "autokernel";
}

/// What processes that were killed have left: no one holds the lock of their directories any more.
void remove_abandoned(const fs::path& where, std::string_view prefix) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(where, ignored)) {
    if (!entry.path().filename().string().starts_with(prefix)) continue;
    Descriptor owner(::open((entry.path() / TemporaryDirectory::owner_file).c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
    if (owner.valid() && FileLock::try_acquire(std::move(owner))) fs::remove_all(entry.path(), ignored);
  }
}

}  // namespace

void Descriptor::reset(int fd) {
  if (fd_ >= 0) ::close(fd_);
  fd_ = fd;
}

std::string read_file(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream || fs::is_directory(path))
    throw Error("cannot read " + path.string() + ": " + (fs::is_directory(path) ? "it is a directory" : reason()));
  std::ostringstream content;
  content << stream.rdbuf();
  return std::move(content).str();
}

std::optional<std::string> read_file_if_exists(const fs::path& path) {
  if (!fs::exists(path)) return std::nullopt;
  return read_file(path);
}

void write_file(const fs::path& path, std::string_view content) {
  std::error_code failed;
  if (path.has_parent_path()) fs::create_directories(path.parent_path(), failed);
  if (failed) throw Error("cannot make the directory of " + path.string() + ": " + failed.message(), advice_for(failed.value()));
  const fs::path temporary = path.string() + ".tmp" + std::to_string(::getpid());
  {
    Descriptor fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    if (!fd.valid()) throw Error("cannot write " + path.string() + ": " + reason(), advice_for(errno));
    try {
      write_all(fd.get(), content, path);
      if (::fsync(fd.get()) != 0) throw Error("cannot write " + path.string() + ": " + reason(), advice_for(errno));
    } catch (const Error&) {
      ::unlink(temporary.c_str());
      throw;
    }
  }
  if (::rename(temporary.c_str(), path.c_str()) != 0) {
    const Error error("cannot replace " + path.string() + ": " + reason(), advice_for(errno));
    ::unlink(temporary.c_str());
    throw error;
  }
}

Json read_json(const fs::path& path) {
  try {
    return Json::parse(read_file(path));
  } catch (const Json::exception& error) {
    throw Error(path.string() + " is not valid JSON: " + error.what());
  }
}

void write_json(const fs::path& path, const Json& value) { write_file(path, value.dump(1) + "\n"); }

bool lies_within(const fs::path& path, const fs::path& directory) {
  const fs::path rest = path.lexically_relative(directory);
  return !rest.empty() && *rest.begin() != "..";
}

TemporaryDirectory::TemporaryDirectory(std::string_view prefix, const fs::path& parent) {
  fs::path where = parent;
  if (where.empty()) {
    where = ::access("/dev/shm", W_OK) == 0 ? fs::path("/dev/shm") : fs::temp_directory_path();
    remove_abandoned(where, prefix);
  }
  std::string pattern = (where / prefix).string() + "XXXXXX";
  if (::mkdtemp(pattern.data()) == nullptr)
    throw Error("cannot make a directory in " + where.string() + ": " + reason(), advice_for(errno));
  path_ = pattern;
  const fs::path unlocked = path_ / (std::string(owner_file) + ".new");
  try {
    owner_ = FileLock::try_acquire(unlocked);
    fs::rename(unlocked, path_ / owner_file);  // nobody sees it before it is locked
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
    throw;
  }
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

std::optional<FileLock> FileLock::try_acquire(const fs::path& path) {
  Descriptor fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!fd.valid()) throw Error("cannot open the lock " + path.string() + ": " + reason(), advice_for(errno));
  return try_acquire(std::move(fd));
}

std::optional<FileLock> FileLock::try_acquire(Descriptor file) {
  if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) return std::nullopt;
  return FileLock(std::move(file));
}

fs::path cache_directory() { return user_directory("XDG_CACHE_HOME", ".cache"); }
fs::path data_directory() { return user_directory("XDG_DATA_HOME", ".local/share"); }

fs::path executable_path() { return fs::read_symlink("/proc/self/exe"); }

fs::path home_directory() {
  if (const char* home = std::getenv("AUTOKERNEL_HOME"); home != nullptr && *home != '\0') return home;
  for (fs::path directory = executable_path().parent_path(); directory != directory.parent_path(); directory = directory.parent_path()) {
    if (fs::exists(directory / "kernels" / "include")) return directory;
    if (fs::exists(directory / "share" / "autokernel" / "kernels")) return directory / "share" / "autokernel";
  }
  throw Error("the kernel families (kernels/) are not beside the program",
              "set AUTOKERNEL_HOME to the directory that holds kernels/ and python/");
}

}  // namespace ak
