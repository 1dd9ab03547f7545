#include "trireme/models/model_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <map>
#include <mutex>

#include "trireme/base/error.h"
#include "trireme/config/library_problem.h"
#include "trireme/tensor/generator_scope.h"

namespace trireme {
namespace {

/// Opens a library; it stays open for the life of the process, since models refer to its code.
const ModelLibrary& open_library(const std::string& path) {
  if (path.empty()) {
    throw UsageError("model.kind = own: the model is one that a program gives to its Trainer",
                     "start that program, or put the model into a library: docs/own_model.md");
  }
  static std::mutex mutex;
  static std::map<std::string, ModelLibrary> opened;
  const std::lock_guard lock(mutex);
  const auto [found, is_new] = opened.try_emplace(path);
  if (!is_new) return found->second;
  const auto fail = [&](const LibraryProblem& problem) {
    opened.erase(found);
    refuse_library(path, problem);
  };
  void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) fail(problem_of_loading(path, ::dlerror()));
  const auto stamp = reinterpret_cast<const char* (*)()>(::dlsym(library, "trireme_library_stamp"));
  const auto fill = reinterpret_cast<void (*)(ModelLibrary&)>(::dlsym(library, "trireme_library_fill"));
  if (!stamp || !fill) fail(without_macro());
  if (std::string(stamp()) != stamp_of_headers()) fail(of_other_version(stamp(), stamp_of_headers()));
  fill(found->second);
  return found->second;
}

const ModelLibrary::Entry& entry_of(const ModelConfig& model) {
  for (const ModelLibrary::Entry& entry : open_library(model.library).entries()) {
    if (entry.keys.name == model.own_kind) return entry;
  }
  throw UsageError(fmt::format("model.library = {} has no model {}", model.library, model.own_kind));
}

/// Calls code of the library; an exception is rethrown with the model and the activity before its message.
template <typename Call>
auto call_library(const ModelConfig& model, const char* doing, Call call) {
  const auto place = [&] { return fmt::format("model.kind = {} ({}): {}", model.own_kind, model.library, doing); };
  try {
    return call();
  } catch (const UsageError& error) {
    throw UsageError(fmt::format("{}: {}", place(), error.what()));
  } catch (const c10::Error& error) {
    throw Error(fmt::format("{}: {}", place(), error.what_without_backtrace()));
  } catch (const std::exception& error) {
    throw Error(fmt::format("{}: {}", place(), error.what()));
  }
}

}  // namespace

std::string describe(const ModelLibrary& library) {
  std::vector<LibraryModelKeys> models;
  for (const ModelLibrary::Entry& entry : library.entries()) models.push_back(entry.keys);
  return describe(models);
}

std::shared_ptr<Model> build_own_model(const ModelConfig& model, uint64_t seed) {
  const ModelLibrary::Entry& entry = entry_of(model);
  const GeneratorScope draws(seed);
  auto made = call_library(model, "making the model", [&] { return entry.make(model); });
  if (!made || made->layers().empty()) {
    throw UsageError(fmt::format("model.kind = {} ({}): the model has no layers", model.own_kind, model.library),
                     "add them with add_layer() in its constructor");
  }
  return made;
}

OpenedData open_own_data(const Config& config) {
  const ModelLibrary::Entry& entry = entry_of(config.model);
  if (!entry.open_data) return open_data(data_options_of(config));
  OpenedData data = call_library(config.model, "opening its samples", [&] { return entry.open_data(config); });
  if (!data.train || data.train->size() < 1) {
    throw UsageError(fmt::format("model.kind = {} ({}): there is no sample to train on", config.model.own_kind,
                                 config.model.library));
  }
  if (data.held_out && data.held_out->shape() != data.train->shape()) {
    throw UsageError(fmt::format("model.kind = {} ({}): held-out samples have another shape than those for training",
                                 config.model.own_kind, config.model.library));
  }
  call_library(config.model, "opening its samples", [&] { require_targets(data.train->shape().targets.size()); });
  return data;
}

}  // namespace trireme
