#include "trireme/observe/append_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include "trireme/base/error.h"

namespace trireme {

void AppendFile::append(std::string_view record) {
  const uint64_t before = file_.num_bytes();
  try {
    file_.write(record);
  } catch (const SystemError&) {
    // Half a record would hide the next ones from readers. Where even this fails, they see a torn record.
    const auto end = static_cast<off_t>(before);
    [[maybe_unused]] const bool mended = ::ftruncate(file_.fd(), end) == 0 && ::lseek(file_.fd(), end, SEEK_SET) == end;
    throw;
  }
}

void replace_file(const std::filesystem::path& path, std::string_view contents) {
  // Beside the file, so that the rename stays on one file system; the pid, so that two writers do not share it.
  const std::filesystem::path temporary = fmt::format("{}.{}.tmp", path.string(), ::getpid());
  ::unlink(temporary.c_str());  // of a killed process that had this pid
  try {
    File::create(temporary).write(contents);
    rename_path(temporary, path);
  } catch (const SystemError&) {
    ::unlink(temporary.c_str());
    throw;
  }
}

}  // namespace trireme
