# SPDX-License-Identifier: MIT
# What consumers of Kformer::io need.
enable_language(C) # FindHDF5 needs it
find_dependency(HDF5 COMPONENTS C HL)
