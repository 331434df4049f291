// Arguments to JSON and results from it.
#include "bridge/worker.h"

#include <nlohmann/json.hpp>

#include "core/error.h"

namespace ak::bridge {
namespace {

/// Read a result with `read`; a field that is missing or of another type is the worker's fault.
template <class Read>
auto typed(const std::string& verb, const Json& result, Read&& read) {
  try {
    return read(result);
  } catch (const Json::exception& error) {
    throw Error("the PyTorch worker's answer to " + verb + " is malformed: " + error.what(),
                "its version differs from this program's: install the two together");
  }
}

Json or_null(const std::string& text) { return text.empty() ? Json() : Json(text); }

std::string text_or_empty(const Json& json, const char* key) {
  return json.contains(key) && !json.at(key).is_null() ? json.at(key).get<std::string>() : std::string();
}

std::vector<TensorInfo> tensors(const Json& json) {
  std::vector<TensorInfo> result;
  for (const Json& tensor : json) result.push_back({tensor.at("dtype").get<std::string>(), tensor.at("shape").get<std::vector<int64_t>>()});
  return result;
}

}  // namespace

LoadedModel Worker::load(const LoadRequest& wanted) {
  const Json shape = wanted.input_shape.empty() ? Json() : Json(wanted.input_shape);
  const Json result = request("load", {{"model", wanted.model},
                                       {"input_shape", shape},
                                       {"dtype", or_null(wanted.dtype)},
                                       {"device", wanted.device},
                                       {"seed", wanted.seed}});
  return typed("load", result, [](const Json& json) {
    LoadedModel model;
    model.parameters = json.at("parameters").get<int64_t>();
    model.inputs = tensors(json.at("inputs"));
    model.output = tensors(json.at("output"));
    model.warnings = json.value("warnings", std::vector<std::string>());
    model.kind = text_or_empty(json, "kind");
    return model;
  });
}

CaptureResult Worker::capture(const std::filesystem::path& path) {
  return typed("capture", request("capture", {{"path", path.string()}}), [](const Json& json) {
    return CaptureResult{json.at("capture").get<std::string>(), text_or_empty(json, "reason"), json.at("graphs").get<int64_t>(),
                         json.at("nodes").get<int64_t>()};
  });
}

PatternsResult Worker::patterns(const std::filesystem::path& families, const std::vector<std::string>& dtypes,
                                const std::filesystem::path& path) {
  const Json result = request("patterns", {{"families", families.string()}, {"dtypes", dtypes}, {"path", path.string()}});
  return typed("patterns", result, [](const Json& json) {
    PatternsResult patterns;
    patterns.patterns = json.at("patterns").get<int64_t>();
    for (const Json& error : json.at("errors")) {
      patterns.errors.push_back(
          {error.at("family").get<std::string>(), error.at("spelling").get<std::string>(), error.at("message").get<std::string>()});
    }
    return patterns;
  });
}

ProfileResult Worker::profile(int64_t iterations, const std::filesystem::path& path) {
  return typed("profile", request("profile", {{"iterations", iterations}, {"path", path.string()}}), [](const Json& json) {
    return ProfileResult{json.at("total_us").get<double>(), json.at("nodes").get<int64_t>()};
  });
}

FixtureFiles Worker::fixtures(const kernel::Task& task, const Json& test_case, const std::filesystem::path& directory,
                              const std::string& device) {
  Json arguments = {{"task", kernel::to_json(task)}, {"case", test_case}, {"directory", directory.string()}};
  if (!device.empty()) arguments["device"] = device;
  return typed("fixtures", request("fixtures", arguments), [](const Json& json) {
    return FixtureFiles{json.at("inputs").get<std::string>(), json.at("expected").get<std::string>(), json.at("bytes").get<int64_t>()};
  });
}

std::map<std::string, BaselineTimes> Worker::baseline(const BaselineRequest& wanted) {
  const Json result = request("baseline", {{"task", kernel::to_json(wanted.task)},
                                           {"binding", kernel::to_json(wanted.binding)},
                                           {"seed", wanted.seed},
                                           {"kinds", wanted.kinds},
                                           {"rounds", wanted.rounds},
                                           {"flush_bytes", wanted.flush_bytes},
                                           {"device", or_null(wanted.device)}});
  return typed("baseline", result, [](const Json& json) {
    std::map<std::string, BaselineTimes> times;
    for (const auto& [kind, entry] : json.at("kinds").items()) {
      times[kind] = {entry.value("samples_us", std::vector<double>()), text_or_empty(entry, "error")};
    }
    return times;
  });
}

void Worker::compile_ahead(const std::vector<kernel::Task>& tasks, const std::vector<std::string>& kinds, int64_t seed,
                           const std::string& device) {
  Json wanted = Json::array();
  for (const kernel::Task& task : tasks)
    wanted.push_back({{"task", kernel::to_json(task)}, {"binding", kernel::to_json(task.workload.front())}});
  request("compile_ahead", {{"tasks", wanted}, {"kinds", kinds}, {"seed", seed}, {"device", or_null(device)}});
}

Json Worker::verify(const std::filesystem::path& run, const std::vector<std::string>& exclude, int64_t rounds,
                    const std::filesystem::path& path) {
  return request("verify", {{"run", run.string()}, {"exclude", exclude}, {"rounds", rounds}, {"path", path.string()}});
}

}  // namespace ak::bridge
