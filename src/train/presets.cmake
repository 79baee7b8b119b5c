# Puts configs/*.toml into the library, so that a preset is found from any folder and in a program copied elsewhere.
file(GLOB octet_presets CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/configs/*.toml)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${octet_presets})
set(octet_preset_entries "")
foreach(preset IN LISTS octet_presets)
    get_filename_component(preset_name ${preset} NAME_WE)
    file(READ ${preset} preset_text)
    string(APPEND octet_preset_entries "    {\"${preset_name}\", R\"toml(${preset_text})toml\"},\n")
endforeach()
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/generated/octet_presets.inc CONTENT "${octet_preset_entries}" @ONLY)

# AdamW's square roots are vectors of them, which errno would forbid.
set_source_files_properties(${CMAKE_CURRENT_SOURCE_DIR}/train/optimizer.cpp PROPERTIES COMPILE_OPTIONS -fno-math-errno)
