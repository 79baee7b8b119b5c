# What every target of ours is built with.

add_library(octet_warnings INTERFACE)
# -Wno-restrict: g++ 12 raises it falsely on std::string concatenation (GCC bug 105651).
set(octet_warning_flags -Wall -Wextra -Wshadow -Wconversion -Wsign-conversion -Wno-psabi -Wno-restrict -Werror)
target_compile_options(octet_warnings INTERFACE $<$<COMPILE_LANGUAGE:C,CXX>:${octet_warning_flags}>)
# No contraction of a*b+c: an operation rounds where NUMERICS says it rounds, on every machine.
target_compile_options(octet_warnings INTERFACE $<$<COMPILE_LANGUAGE:C,CXX>:-ffp-contract=off>)
target_compile_options(octet_warnings INTERFACE
    $<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr --expt-extended-lambda -Werror=all-warnings --fmad=true>)

if(OCTET_SANITIZE)
    add_compile_options($<$<COMPILE_LANGUAGE:C,CXX>:-fsanitize=${OCTET_SANITIZE}>
                        $<$<COMPILE_LANGUAGE:C,CXX>:-fno-sanitize-recover=all>
                        $<$<COMPILE_LANGUAGE:C,CXX>:-fno-omit-frame-pointer>)
    add_link_options(-fsanitize=${OCTET_SANITIZE})
endif()

# The commit the build was made from, for the stamp of results and `octet info`.
execute_process(COMMAND git -C ${CMAKE_SOURCE_DIR} describe --always --dirty --abbrev=12
                OUTPUT_VARIABLE OCTET_COMMIT OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT OCTET_COMMIT)
    set(OCTET_COMMIT unknown)
endif()
configure_file(${CMAKE_SOURCE_DIR}/cmake/build_info.hpp.in ${CMAKE_BINARY_DIR}/generated/octet_build_info.hpp @ONLY)
