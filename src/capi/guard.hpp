// What every C entry point is wrapped in: exceptions become a status and a text, and never leave.
#pragma once

#include <new>
#include <utility>

#include "octet/error.hpp"
#include "octet/octet.h"

namespace octet::capi {

// Keeps "function: message" for octet_last_error on this thread. Allocates nothing, so it works when memory is out.
void remember_error(const char* function, const char* message) noexcept;

template <class Body>
octet_status guarded(const char* function, Body&& body) noexcept {
    try {
        std::forward<Body>(body)();
        return OCTET_OK;
    } catch (const Error& error) {
        remember_error(function, error.what());
        return static_cast<octet_status>(error.status());
    } catch (const std::bad_alloc&) {
        remember_error(function, "could not allocate host memory; free some or use smaller tensors");
        return OCTET_OUT_OF_MEMORY;
    } catch (const std::exception& error) {
        remember_error(function, error.what());
        return OCTET_INTERNAL;
    } catch (...) {
        remember_error(function, "an unknown exception was thrown; this is a bug in Octet");
        return OCTET_INTERNAL;
    }
}

}  // namespace octet::capi
