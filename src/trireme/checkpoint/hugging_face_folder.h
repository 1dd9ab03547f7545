// The files next to exported weights with which `transformers` loads the folder: config.json and the tokenizer's.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "trireme/config/model_config.h"

namespace trireme {

struct FolderFile {
  std::filesystem::path path;
  std::filesystem::path old;  ///< what the file of other contents that was there is called now; empty: there was none
};

struct HuggingFaceFolder {
  std::vector<FolderFile> files;  ///< all have the contents that belong to these weights
  std::string warning;            ///< of a tokenizer whose files are not there; empty: none
};

/// Writes what belongs to weights of this model in float32. `tokenizer` is data.tokenizer of the run (a file, a folder,
/// or empty: bytes); its files are copied. Nothing is lost: a file of other contents is renamed to NAME.old first.
/// Throws SystemError.
HuggingFaceFolder write_hugging_face_folder(const std::filesystem::path& folder, const ModelConfig& model,
                                            const std::filesystem::path& tokenizer);

}  // namespace trireme
