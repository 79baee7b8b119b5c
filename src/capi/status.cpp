// Status codes, the last error of a thread, and what this build is.
#include <cstdio>
#include <string>

#include "capi/guard.hpp"
#include "octet_build_info.hpp"

static_assert(OCTET_VERSION_MAJOR == octet::build_info::version_major &&
                  OCTET_VERSION_MINOR == octet::build_info::version_minor &&
                  OCTET_VERSION_PATCH == octet::build_info::version_patch,
              "octet.h and CMakeLists.txt name different versions");
static_assert(OCTET_OK == static_cast<int>(octet::Status::ok) &&
              OCTET_INTERNAL == static_cast<int>(octet::Status::internal));

namespace octet::capi {
namespace {

constexpr std::size_t error_capacity = 2048;
thread_local char last_error[error_capacity] = "";

}  // namespace

void remember_error(const char* function, const char* message) noexcept {
    std::snprintf(last_error, error_capacity, "%s: %s", function, message);
}

}  // namespace octet::capi

extern "C" {

const char* octet_status_name(octet_status status) {
    if (status < OCTET_OK || status > OCTET_INTERNAL) return "unknown status";
    return octet::name(static_cast<octet::Status>(status));
}

const char* octet_last_error(void) { return octet::capi::last_error; }

const char* octet_version(void) { return octet::build_info::version; }

int32_t octet_abi_version(void) { return OCTET_ABI_VERSION; }

const char* octet_build_info(void) {
    using namespace octet::build_info;
    static const std::string text = std::string("octet ") + version + ", commit " + commit + ", " + compiler + ", " +
                                    build_type + ", cuda " + (*cuda != 0 ? cuda : "none") + ", highway " + highway;
    return text.c_str();
}

}  // extern "C"
