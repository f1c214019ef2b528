"""The array functions: arrays in, arrays out, on the device that the arrays are on."""
