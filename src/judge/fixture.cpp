// A list in order of use; a case is known by its canonical JSON.
#include "judge/fixture.h"

#include <unistd.h>

#include <algorithm>

#include "core/safetensors.h"

namespace ak::judge {
namespace {

namespace fs = std::filesystem;

constexpr int uses_of_a_seed = 64;
constexpr size_t kept_entries = 2;  // however large: the null candidates compare two
constexpr int64_t least_fixture_bytes = int64_t{512} << 20, share_of_memory = 16;

int64_t size_of(const fs::path& path) {
  std::error_code ignored;
  const auto size = fs::file_size(path, ignored);
  return ignored ? 0 : static_cast<int64_t>(size);
}

void remove(const Fixture& files) {
  std::error_code ignored;
  for (const fs::path& path : {files.inputs, files.expected}) {
    fs::remove(path, ignored);
    fs::remove(path.parent_path(), ignored);  // where it is empty
  }
}

std::vector<int64_t> strides_in(const SafetensorsFile& file, const std::string& tensor) {
  return Json::parse(file.metadata(tensor + ".strides")).get<std::vector<int64_t>>();
}

}  // namespace

FixtureCache::FixtureCache(FixtureSource& source, kernel::Task task, int64_t maximum_bytes)
    : source_(source), task_(std::move(task)), maximum_bytes_(maximum_bytes) {
  std::random_device device;
  std::seed_seq seeds{device(), device(), device(), device()};
  seeds_.seed(seeds);
}

int64_t usual_fixture_bytes() {
  const int64_t memory = static_cast<int64_t>(::sysconf(_SC_PHYS_PAGES)) * ::sysconf(_SC_PAGESIZE);
  return std::max(least_fixture_bytes, memory / share_of_memory);
}

FixtureCache::~FixtureCache() {
  while (!entries_.empty()) drop(entries_.begin());
}

void FixtureCache::drop(Entries::iterator entry) {
  bytes_ -= entry->second.bytes;
  remove(entry->second.files);
  entries_.erase(entry);
}

void FixtureCache::make_room() {
  while (bytes_ > maximum_bytes_ && entries_.size() > kept_entries) drop(std::prev(entries_.end()));
}

CaseFixture FixtureCache::make(const Json& test_case) {
  CaseFixture made;
  made.test_case = test_case;
  made.test_case["seed"] = seeds_() >> 33;
  made.binding = kernel::binding_from_json(test_case);
  made.files = source_.make(task_, made.test_case);
  made.bytes = size_of(made.files.inputs) + size_of(made.files.expected);
  const SafetensorsFile inputs = SafetensorsFile::open(made.files.inputs), expected = SafetensorsFile::open(made.files.expected);
  for (const kernel::Tensor& tensor : task_.tensors) {
    if (!tensor.absent)
      made.binding.strides[tensor.name] = strides_in(tensor.role == kernel::Role::output ? expected : inputs, tensor.name);
  }
  return made;
}

const CaseFixture& FixtureCache::get(const Json& test_case, bool fresh) {
  const std::string key = test_case.dump();
  auto found = entries_.begin();
  while (found != entries_.end() && found->first != key) ++found;
  if (found != entries_.end() && (fresh || found->second.uses >= uses_of_a_seed)) {
    drop(found);
    found = entries_.end();
  }
  if (found == entries_.end()) {
    entries_.emplace_front(key, make(test_case));
    bytes_ += entries_.front().second.bytes;
    make_room();
  } else {
    entries_.splice(entries_.begin(), entries_, found);
  }
  ++entries_.front().second.uses;
  return entries_.front().second;
}

}  // namespace ak::judge
