// Progress first: opening a run may have something to say.
#include "cli/opened.h"

#include <fmt/format.h>

#include "core/file.h"
#include "store/state_file.h"

namespace ak::cli {

std::unique_ptr<report::Progress> progress_for(const Options& options, const Clock& clock, const std::string& title) {
  std::FILE* out = options.json ? stdout : stderr;
  return report::make_progress(report::style_for(out, options.json), out, clock, title);
}

std::unique_ptr<Opened> open_for_request(Options& options) {
  settle_request(options);
  auto opened = std::make_unique<Opened>();
  const std::filesystem::path directory = directory_for_request(options);
  if (!options.state_file.empty()) store::read_state(options.state_file, directory, cache_directory() / "compile", options.request.model);
  store::Run run = store::Run::open(directory, options.request, opened->clock);
  opened->progress = progress_for(options, opened->clock, options.request.model);
  opened->progress->note(fmt::format("{} {}", run.resumed() ? "resuming the run in" : "the run is in", directory.string()));
  opened->session.emplace(std::move(run), opened->clock, *opened->progress);
  opened->session->keep_state(options.state_file);
  listen_for_stop();
  return opened;
}

std::unique_ptr<Opened> open_existing(const Options& options) {
  auto opened = std::make_unique<Opened>();
  const std::filesystem::path directory = existing_directory(options);
  if (!options.state_file.empty()) store::read_state(options.state_file, directory, cache_directory() / "compile");
  store::Run run = store::Run::open_existing(directory, opened->clock);
  opened->progress = progress_for(options, opened->clock, run.request().model);
  opened->session.emplace(std::move(run), opened->clock, *opened->progress);
  opened->session->keep_state(options.state_file);
  listen_for_stop();
  return opened;
}

}  // namespace ak::cli
