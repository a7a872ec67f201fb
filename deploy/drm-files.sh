# shellcheck shell=bash
# Prints the drop-in that opens to the actuator the files of the GPUs of AMD and Intel below ROOT, by their
# addresses, which stay: `bash drm-files.sh [ROOT]`. systemd has no patterns. hwmon's and DRM's numbers
# change with each load of a driver, so those folders are opened.
gpus=${1:-}/sys/bus/pci/drivers
printf '[Service]\n'
for path in "$gpus"/{amdgpu,xe,i915}/*:*/{hwmon,power_dpm_force_performance_level,pp_dpm_sclk,pp_od_clk_voltage} \
  "$gpus"/xe/*:*/tile*/gt*/freq0/max_freq "$gpus"/i915/*:*/drm; do
  [ ! -e "$path" ] || printf 'ReadWritePaths=-%s\n' "${path#"${1:-}"}"
done
