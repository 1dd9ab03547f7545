// Models of your own for `trireme train`, in a shared library:
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
// docs/own_model.md tells the whole way. Threads: one at a time.
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
  /// Makes the model of a configuration; own_value<int64_t>(model, "width") is a value of [model.NAME]. Parameters that
  /// it draws depend on train.seed alone. All ranks make the same one.
  using Make = std::function<std::shared_ptr<Model>(const ModelConfig& model)>;
  /// Samples for training and held out, of one shape.
  using OpenData = std::function<OpenedData(const Config& config)>;

  /// The type of a key's default is its type: 8 is a whole number, 8.0 a number.
  void add(std::string name, std::string meaning, std::vector<LibraryKey> keys, Make make, OpenData open_data) {
    entries_.push_back({{std::move(name), std::move(meaning), SampleKind::kOwn, std::move(keys)},
                        std::move(make),
                        std::move(open_data)});
  }
  /// A model of what [data] names: images or tokens.
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

/// The model that model.library and model.kind name, with its values. Throws UsageError where it cannot be made.
std::shared_ptr<Model> build_own_model(const ModelConfig& model, uint64_t seed);
/// What it learns from: opened by its library, or as [data] says.
OpenedData open_own_data(const Config& config);

/// What a library is built for: its own answer and the program's must be the same.
inline const char* stamp_of_headers() {
  static const std::string stamp = "Trireme " + std::string(kVersion) + ", libtorch " + TORCH_VERSION;
  return stamp.c_str();
}
std::string describe(const ModelLibrary& library);

}  // namespace trireme

/// Followed by a function's body, which adds models to `library`. Once in a shared library.
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
