// The table is that of SQLite's own archives, so no tool of ours is needed to look into one.
#include "store/archive.h"

#include <sqlite3.h>
#include <zlib.h>

#include <memory>

#include "core/error.h"

namespace ak::store {
namespace {

constexpr const char* create_table = "CREATE TABLE sqlar(name TEXT PRIMARY KEY, mode INT, mtime INT, sz INT, data BLOB)";
constexpr int regular_file_mode = 0100644;
constexpr int64_t largest_file = int64_t{1} << 30;  // a damaged size must not ask for more

struct CloseDatabase {
  void operator()(sqlite3* database) const { sqlite3_close(database); }
};
struct FinishStatement {
  void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
};
using Statement = std::unique_ptr<sqlite3_stmt, FinishStatement>;

class Database {
 public:
  Database(const std::filesystem::path& path, int flags) : path_(path) {
    sqlite3* opened = nullptr;
    const int code = sqlite3_open_v2(path.c_str(), &opened, flags, nullptr);
    database_.reset(opened);
    check(code);
  }

  void run(const char* sql) { check(sqlite3_exec(database_.get(), sql, nullptr, nullptr, nullptr)); }
  Statement prepare(const char* sql) {
    sqlite3_stmt* statement = nullptr;
    check(sqlite3_prepare_v2(database_.get(), sql, -1, &statement, nullptr));
    return Statement(statement);
  }
  /// Whether there is a row.
  bool step(const Statement& statement) {
    const int code = sqlite3_step(statement.get());
    if (code != SQLITE_ROW && code != SQLITE_DONE) check(code);
    return code == SQLITE_ROW;
  }

 private:
  void check(int code) const {
    if (code != SQLITE_OK)
      throw Error("the state file " + path_.string() + ": " + (database_ ? sqlite3_errmsg(database_.get()) : sqlite3_errstr(code)),
                  "name another with --state, or remove it to begin anew");
  }

  std::filesystem::path path_;
  std::unique_ptr<sqlite3, CloseDatabase> database_;
};

std::string text_of(const Statement& row, int column) {
  const void* data = sqlite3_column_blob(row.get(), column);
  const auto size = static_cast<size_t>(sqlite3_column_bytes(row.get(), column));
  return data == nullptr ? std::string() : std::string(static_cast<const char*>(data), size);
}

}  // namespace

Packed pack(std::string_view content) {
  uLongf size = compressBound(content.size());
  std::string data(size, '\0');
  const int code = compress2(reinterpret_cast<Bytef*>(data.data()), &size, reinterpret_cast<const Bytef*>(content.data()), content.size(),
                             Z_BEST_COMPRESSION);
  AK_CHECK(code == Z_OK, "a buffer of compressBound() bytes is large enough");
  data.resize(size);
  if (data.size() >= content.size()) data = content;
  return {std::move(data), static_cast<int64_t>(content.size())};
}

std::string unpack(const Packed& packed) {
  if (static_cast<int64_t>(packed.data.size()) == packed.bytes) return packed.data;
  if (packed.bytes < 0 || packed.bytes > largest_file) throw Error("a file in the state file is damaged");
  std::string content(static_cast<size_t>(packed.bytes), '\0');
  uLongf size = content.size();
  const int code =
      uncompress(reinterpret_cast<Bytef*>(content.data()), &size, reinterpret_cast<const Bytef*>(packed.data.data()), packed.data.size());
  if (code != Z_OK || size != content.size()) throw Error("a file in the state file is damaged");
  return content;
}

void write_archive(const std::filesystem::path& path, const std::map<std::string, Packed>& files) {
  Database database(path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE);
  database.run("BEGIN");
  database.run(create_table);
  for (const auto& [name, packed] : files) {
    const Statement insert = database.prepare("INSERT INTO sqlar(name, mode, mtime, sz, data) VALUES(?1, ?2, 0, ?3, ?4)");
    sqlite3_bind_text(insert.get(), 1, name.data(), static_cast<int>(name.size()), SQLITE_STATIC);
    sqlite3_bind_int(insert.get(), 2, regular_file_mode);
    sqlite3_bind_int64(insert.get(), 3, packed.bytes);
    sqlite3_bind_blob64(insert.get(), 4, packed.data.data(), packed.data.size(), SQLITE_STATIC);
    database.step(insert);
  }
  database.run("COMMIT");
}

std::map<std::string, Packed> read_archive(const std::filesystem::path& path) {
  Database database(path, SQLITE_OPEN_READONLY);
  const Statement rows = database.prepare("SELECT name, sz, data FROM sqlar");
  std::map<std::string, Packed> files;
  while (database.step(rows)) files[text_of(rows, 0)] = {text_of(rows, 2), sqlite3_column_int64(rows.get(), 1)};
  return files;
}

}  // namespace ak::store
