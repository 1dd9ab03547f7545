// models/fp8.h in a build without CUDA: 8-bit matmuls are not available.
#include "trireme/base/error.h"
#include "trireme/models/fp8.h"

namespace trireme {

struct Fp8Products::Inside {};

Fp8Products::Fp8Products(const Model&) {
  throw UsageError("precision.matmul = \"fp8\": this build has no GPU code", "build with cmake --preset cuda");
}
Fp8Products::~Fp8Products() = default;
void Fp8Products::copy_weights() {}
void Fp8Products::update_scales(const std::function<void(at::Tensor&)>&) {}
std::string Fp8Products::state() const { return {}; }
bool Fp8Products::restore(const std::string&) { return false; }
size_t Fp8Products::num_bytes() const { return 0; }

Fp8Scope::Fp8Scope(Fp8Products* products) : products_(products) {}
Fp8Scope::~Fp8Scope() = default;

}  // namespace trireme
