// Your own models for `trireme train`, in a shared library:
//
//   #include <trireme/torch.h>
//
//   TRIREME_MODEL_LIBRARY(library) {
//     library.add("unet", "a U-Net for small images", {{"width", 16, "channels of the first level", 1, 512}},
//                 [](const trireme::ModelConfig& model) { return std::make_shared<UNet>(model); },
//                 [](const trireme::Config& config) { return open_shapes(config); });
//   }
//
//   trireme train --model.library ./libunet.so --model.kind unet --model.unet.width 32
//
// docs/own_model.md describes every step. Threads: one at a time.
#pragma once

#include <torch/version.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trireme/base/version.h"
#include "trireme/config/config.h"
#include "trireme/data/open_data.h"
#include "trireme/models/model.h"

namespace trireme {

class ModelLibrary {
 public:
  /// Builds the model of a configuration; own_value<int64_t>(model, "width") is a value of [model.NAME]. Random initial
  /// parameters depend only on train.seed, so all ranks build the same model.
  using Make = std::function<std::shared_ptr<Model>(const ModelConfig& model)>;
  /// Opens the samples for training and the held-out samples; both must have the same shape.
  using OpenData = std::function<OpenedData(const Config& config)>;

  /// Adds a model that opens its own data. The default of a key determines its type: 8 is an integer, 8.0 a real
  /// number.
  void add(std::string name, std::string meaning, std::vector<LibraryKey> keys, Make make, OpenData open_data) {
    entries_.push_back({{std::move(name), std::move(meaning), SampleKind::kOwn, std::move(keys)},
                        std::move(make),
                        std::move(open_data)});
  }
  /// Adds a model that trains on what [data] names: images or tokens.
  void add(std::string name, std::string meaning, std::vector<LibraryKey> keys, Make make, SampleKind samples) {
    entries_.push_back({{std::move(name), std::move(meaning), samples, std::move(keys)}, std::move(make), {}});
  }

  struct Entry {
    LibraryModelKeys keys;
    Make make;
    OpenData open_data;  ///< null: what [data] names
  };
  const std::vector<Entry>& entries() const { return entries_; }

 private:
  std::vector<Entry> entries_;
};

/// Builds the model that model.library and model.kind name, with its values. Throws UsageError if it cannot be built.
std::shared_ptr<Model> build_own_model(const ModelConfig& model, uint64_t seed);
/// Opens its data, with the library's function or as [data] says.
OpenedData open_own_data(const Config& config);

/// What a library was built for; it must be the same in the library and in the program.
inline const char* stamp_of_headers() {
  static const std::string stamp = "Trireme " + std::string(kVersion) + ", libtorch " + TORCH_VERSION;
  return stamp.c_str();
}
std::string describe(const ModelLibrary& library);

}  // namespace trireme

/// Followed by a function body that adds models to `library`. Use it once per shared library.
#define TRIREME_MODEL_LIBRARY(library)                                                                     \
  static void trireme_add_models(trireme::ModelLibrary& library);                                          \
  extern "C" __attribute__((visibility("default"))) const char* trireme_library_stamp() {                  \
    return trireme::stamp_of_headers();                                                                    \
  }                                                                                                        \
  extern "C" __attribute__((visibility("default"))) void trireme_library_fill(trireme::ModelLibrary& to) { \
    trireme_add_models(to);                                                                                \
  }                                                                                                        \
  extern "C" __attribute__((visibility("default"))) void trireme_library_describe(std::string& text) {     \
    trireme::ModelLibrary all;                                                                             \
    trireme_add_models(all);                                                                               \
    text = trireme::describe(all);                                                                         \
  }                                                                                                        \
  static void trireme_add_models(trireme::ModelLibrary& library)
